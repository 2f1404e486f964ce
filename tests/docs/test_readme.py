"""README.md and the pages for users: commands run as they are written, in order, in a fresh clone's place; the Python example, the
settings of MCP clients and the picture are true; options, paths and headings that the texts name are there."""

import json
import os
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import picture
import pytest
from docs_readme import Block, Shell, differs, python_example, read_page
from mcp_serve.helpers import Raw
from shared_supervisor import runtime_folder

KEPT = ("SSL_CERT_FILE", "LD_LIBRARY_PATH", "CG_SANITIZED")


# The commands of these pages are run, one page after the other in one shell.
PAGES = ["README.md", "docs/tour.md", "docs/install.md", "docs/mcp-serve.md", "docs/mcp-http.md", "docs/jupyter.md"]
TEXTS = [*PAGES, "docs/README.md", "docs/python-package.md", "docs/c-api.md", "docs/events.md"]


@pytest.fixture(scope="module")
def blocks(repo: Path) -> list[Block]:
    return [b for page in PAGES for b in read_page(repo / page)]


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


@pytest.fixture
def own_names(tmp_path: Path) -> Iterator[dict[str, str]]:
    """In place of the port and the folder of a reader's server, which another test may have at the same time."""
    with socket.socket() as reserved:
        # Bound but not listening: a server that has this option as well gets the port, and nobody else.
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        yield {"127.0.0.1:8931": f"127.0.0.1:{reserved.getsockname()[1]}", "/tmp/agent": str(tmp_path / "agent")}


def test_commands_do_what_the_page_shows(
    blocks: list[Block], shell: Shell, own_names: dict[str, str], slowness: float
) -> None:
    run = [b for b in blocks if not b.where]
    assert sum(len(b.commands) for b in run) >= 10
    text = "\n".join(c.text for b in run for c in b.commands)
    assert all(name in text for name in own_names)
    wrong = []
    for block in run:
        for c in block.commands:
            command = c.text
            for name, own in own_names.items():
                command = command.replace(name, own)
            status, shown = shell.run(command, c.answers, 60 * slowness)
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


@pytest.mark.parametrize("page", TEXTS)
def test_options_that_the_text_names_exist(repo: Path, cellgate: Path, page: str) -> None:
    """`cellgate ...` in the text: the command is there, and its help has each of the options."""
    text = re.sub(r"^```.*?^```$", "", (repo / page).read_text(), flags=re.M | re.S)
    for span in re.findall(r"`cellgate ([^`\n]+)`", text):
        words = span.split()
        command = [w for w in words[: 2 if words[0] in ("mcp", "jupyter", "env") else 1] if w[0] != "-" and w != "..."]
        p = subprocess.run([cellgate, *command, "--help"], capture_output=True, text=True, timeout=60)
        assert p.returncode == 0, span
        for option in re.findall(r"(?<![\w-])(--?[a-z][\w-]*)", span):
            assert re.search(rf"(?<![\w-]){re.escape(option)}\b", p.stdout), f"{option} of `cellgate {span}`"


def anchor(heading: str) -> str:
    """What GitHub makes of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower().replace("`", "")).replace(" ", "-")


def headings(page: Path) -> set[str]:
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    return {anchor(h) for h in re.findall(r"^#+ (.*)$", text, re.M)}


def test_links_lead_somewhere(repo: Path) -> None:
    """Links between documents, with the headings that they name; paths in the text."""
    wrong = []
    for page in [*repo.glob("*.md"), *(repo / "docs").glob("*.md")]:
        text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
        for path, name in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", text):
            target = page.parent / path if path else page
            if not target.exists() or (name and name not in headings(target)):
                wrong.append(f"{page.name}: {path}#{name}")
        if str(page.relative_to(repo)) in TEXTS:
            paths = re.findall(r"`((?:scripts|bench|examples|docs)/[\w./-]+)`", text)
            wrong += [f"{page.name}: {p}" for p in paths if not (repo / p).exists()]
    assert wrong == []


def test_paths_of_the_recipes_exist(repo: Path) -> None:
    text = (repo / "CONTRIBUTING.md").read_text().partition("\n## How to add\n")[2].partition("\n## ")[0]
    paths = re.findall(r"`([\w./-]+/[\w.-]+\.(?:c|h|py|md))`", text)
    assert len(paths) > 30
    roots = (repo, repo / "src", repo / "src/sandbox", repo / "tests")
    assert [p for p in paths if not any((root / p).exists() for root in roots)] == []


def test_every_document_is_in_the_index(repo: Path) -> None:
    index = (repo / "docs/README.md").read_text()
    assert [p.name for p in (repo / "docs").glob("*.md") if p.name != "README.md" and f"]({p.name})" not in index] == []


def test_long_pages_begin_with_their_contents(repo: Path) -> None:
    for page in (repo / "docs").glob("*.md"):
        text = page.read_text()
        if text.count("\n") > 150 and len(titles := re.findall(r"^## (.*)$", text, re.M)) > 2:
            listed = re.findall(r"^- \[.*\]\(#(.*)\)$", text, re.M)
            assert listed[: len(titles)] == [anchor(t) for t in titles], page.name


def test_the_first_page_is_short(repo: Path) -> None:
    assert (repo / "README.md").read_text().count("\n") <= 150


# ---------------------------------------------------------------- the examples


@pytest.fixture
def package(prefix: Path) -> Path:
    path = prefix / "lib/cellgate/package"
    if not (path / "cellgate").is_dir():
        pytest.skip("cellgate was built without -Dpython_package")
    return path


@pytest.mark.no_sanitizer  # the binding is loaded into a Python without it
def test_python_example(repo: Path, package: Path, npm_dir: Path, test_python: str, tmp_path: Path) -> None:
    """As it is written, but `npx` is a program that starts the same server from the tests' packages."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "work").mkdir()
    npx = tmp_path / "bin/npx"
    npx.write_text(f'#!/bin/sh\nshift 2\nexec {npm_dir}/node_modules/.bin/mcp-server-filesystem "$@"\n')
    npx.chmod(0o755)
    drafts = tmp_path / "drafts"
    program = python_example(repo / "README.md", "From Python").replace("/tmp/drafts", str(drafts))
    env = {**os.environ, "PATH": f"{tmp_path}/bin:/usr/bin:/bin", "PYTHONPATH": str(package)}
    for answer, shown in (("n", "error None"), ("y", "ok Result(content=")):
        argv = [test_python, "-c", program]
        p = subprocess.run(argv, cwd=tmp_path / "work", env=env, input=answer + "\n", capture_output=True, text=True)
        assert p.returncode == 0, p.stderr
        question, _, rest = p.stdout.partition("  Allow? ")
        assert question.startswith("files.write_file {") and rest.startswith(shown)
        assert (drafts / "a.txt").exists() == (answer == "y")


@pytest.mark.no_sanitizer
def test_first_example_of_the_package(repo: Path, package: Path, test_python: str, tmp_path: Path) -> None:
    program = python_example(repo / "docs/python-package.md", "A session")
    env = {**os.environ, "PYTHONPATH": str(package)}
    p = subprocess.run([test_python, "-c", program], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert (p.stdout, p.stderr) == ("499500\n2 data.csv\n", "")


@pytest.mark.parametrize("page", ["README.md", "docs/mcp-serve.md"])
def test_settings_of_mcp_clients(repo: Path, cellgate: Path, tmp_path: Path, page: str, slowness: float) -> None:
    """The command lines that clients run start a server with the tool that the page names."""
    text = (repo / page).read_text()
    lines = [line.partition(" -- ")[2].split() for line in text.splitlines() if line.startswith("claude mcp add ")]
    for settings in map(json.loads, re.findall(r"^```json\n(.*?)^```", text, re.M | re.S)):
        for server in settings.get("mcpServers", settings.get("servers")).values():
            if "cellgate" in server["command"]:
                lines.append([server["command"], *server["args"]])
    assert len(lines) == 3
    for command, *args in lines:
        assert command == "/usr/local/bin/cellgate"
        args[args.index("--workspace") + 1] = str(tmp_path)
        server = Raw([str(cellgate), *args], tmp_path, dict(os.environ), slowness)
        try:
            server.initialize()
            assert "execute_ipython_cell" in json.dumps(server.result(server.request("tools/list")))
        finally:
            server.end()


def test_tools_of_mcp_serve_are_documented(repo: Path) -> None:
    source = (repo / "src/cli/mcp_serve/mcp_serve.h").read_text()
    names = re.findall(r'^ +X\(\w+, "(\w+)"', source, re.M)
    assert "execute_ipython_cell" in names
    table = (repo / "docs/mcp-serve.md").read_text().partition("\n## Tools\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.M)) == set(names)


def test_the_picture_is_current(prefix: Path, npm_dir: Path, slowness: float) -> None:
    """Made again by scripts/picture.py it has the same texts, but for the digits of the accepting keys."""
    drawn = picture.draw(picture.record(prefix, npm_dir, slowness))
    assert picture.masked(drawn) == picture.masked(picture.PICTURE.read_text())


def test_events_are_in_one_table(repo: Path) -> None:
    """docs/events.md has every event of the C API, the Python class of each, and types of JSON lines that exist."""
    rows = re.findall(r"^\| `([A-Z_]+)` \| `(\w+)` \| (?:`(\w+)`)? ?\|", (repo / "docs/events.md").read_text(), re.M)
    header = (repo / "include/cellgate.h").read_text()
    header = header[header.index("enum cg_event_type {") : header.index("enum cg_status {")]
    assert sorted(r[0] for r in rows) == sorted(re.findall(r"^\s+CG_EVENT_([A-Z_]+)", header, re.M))
    events = (repo / "python/cellgate/_events.py").read_text()
    for name, python, kind in rows:
        # The function, or a lambda, that makes the object.
        maker = re.search(rf"lib\.CG_EVENT_{name}: (.*),$", events, re.M)
        assert maker, name
        body = events.partition(f"\ndef {maker[1]}(")[2].partition("\ndef ")[0]
        assert re.search(rf"\b{python}\(", maker[1] + body), name
        assert not kind or f"`{kind}`" in (repo / "docs/cli-json.md").read_text(), kind
