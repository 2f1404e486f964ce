"""README.md: its commands run as they are written, in order, in a fresh clone's place; options that its text names are there."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from docs_readme import Block, Shell, differs, read_page
from shared_supervisor import runtime_folder

KEPT = ("SSL_CERT_FILE", "LD_LIBRARY_PATH", "CG_SANITIZED")


@pytest.fixture(scope="module")
def blocks(repo: Path) -> list[Block]:
    return read_page(repo / "README.md")


@pytest.fixture
def tree(repo: Path, prefix: Path, npm_dir: Path, tmp_path: Path) -> Path:
    """A tree like a fresh clone after scripts/quickstart."""
    tree = tmp_path / "cellgate"
    tree.mkdir()
    for path in repo.iterdir():
        if path.name not in ("build", ".deps", ".git"):
            (tree / path.name).symlink_to(path)
    for name, target in (("build/quickstart/root", prefix), (".deps/npm", npm_dir)):
        (tree / name).parent.mkdir(parents=True)
        (tree / name).symlink_to(target)
    return tree


@pytest.fixture
def shell(tree: Path, tmp_path: Path) -> Iterator[Shell]:
    home, temporary = tmp_path / "home", tmp_path / "tmp"
    home.mkdir()
    temporary.mkdir()
    env = {k: os.environ[k] for k in KEPT if k in os.environ}
    env |= {"HOME": str(home), "TMPDIR": str(temporary), "PATH": "/usr/bin:/bin", "TERM": "xterm", "LC_ALL": "C.UTF-8"}
    with runtime_folder() as runtime:  # the commands share a supervisor, as a reader's do
        env["XDG_RUNTIME_DIR"] = str(runtime)
        s = Shell(["bash", "--norc", "--noprofile", "--noediting", "-i"], env, tree)
        yield s
        s.close()


def test_commands_do_what_the_page_shows(blocks: list[Block], shell: Shell, slowness: float) -> None:
    run = [b for b in blocks if not b.where]
    assert sum(len(b.commands) for b in run) >= 10
    wrong = []
    for block in run:
        for c in block.commands:
            status, shown = shell.run(c.text, c.answers, 60 * slowness)
            if c.output is None and status != 0:
                wrong.append(f"line {block.line}: {c.text}: exit status {status}: {shown}")
            elif c.output is not None and (why := differs(c.output, shown)):
                wrong.append(f"line {block.line}: {c.text}: {why}")
    assert not wrong, "\n\n".join(wrong)


def test_what_is_not_run_says_why(blocks: list[Block]) -> None:
    for b in blocks:
        assert not b.where or len(b.reason) > 10
    # A page on which nothing were run would pass.
    assert [b.line for b in blocks if b.where == "not run"] != [b.line for b in blocks]


def test_options_that_the_text_names_exist(repo: Path, cellgate: Path) -> None:
    """`cellgate ...` in the text: the command is there, and its help has each of the options."""
    text = re.sub(r"^```.*?^```$", "", (repo / "README.md").read_text(), flags=re.M | re.S)
    spans = re.findall(r"`cellgate ([^`\n]+)`", text)
    assert len(spans) >= 5
    for span in spans:
        words = span.split()
        command = [w for w in words[: 2 if words[0] in ("mcp", "jupyter", "env") else 1] if w[0] != "-" and w != "..."]
        if command in (["jupyter"], ["mcp"], ["env"]):
            command = command[:1]
        p = subprocess.run([cellgate, *command, "--help"], capture_output=True, text=True, timeout=60)
        assert p.returncode == 0, span
        for option in re.findall(r"(?<![\w-])(--?[a-z][\w-]*)", span):
            assert re.search(rf"(?<![\w-]){re.escape(option)}\b", p.stdout), f"{option} of `cellgate {span}`"


def test_paths_that_the_page_names_exist(repo: Path) -> None:
    text = (repo / "README.md").read_text()
    paths = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text) + re.findall(
        r"`((?:scripts|bench|examples|docs)/[\w./-]+)", text
    )
    assert len(paths) >= 10
    assert [p for p in paths if not (repo / p).exists()] == []
