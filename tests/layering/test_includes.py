"""Which folder includes which: dependencies point one way (docs/architecture.md), read from the sources."""

import re
from pathlib import Path

import pytest

# Folder of src/ to the folders whose headers it may include, beside its own and the public header.
MAY_INCLUDE = {
    "base": set(),
    "sandbox": {"base"},
    "codegen": {"base"},
    "mcp": {"base", "codegen"},
    "kernel": {"base", "sandbox"},
    "jupyter": {"base"},
    "supervisor": {"base", "sandbox"},
    "client": {"base"},
    "selftest": {"sandbox"},  # the table of protected names: each of them is tried
    "cli": {"base", "sandbox", "codegen", "mcp", "jupyter"},
}
# Headers of libraries that only one folder may see.
RESERVED = {
    "Python.h": {"kernel"},
    "curl/curl.h": {"mcp"},
    "sqlite3.h": set(),
    "microhttpd.h": {"mcp"},
}
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.M)


def sources(repo: Path) -> list[Path]:
    return sorted(p for p in (repo / "src").rglob("*.[ch]"))


def includes(file: Path) -> list[str]:
    return INCLUDE.findall(file.read_text())


def folder_of(file: Path, repo: Path) -> str:
    return file.relative_to(repo / "src").parts[0]


def test_sources_are_found(repo: Path) -> None:
    assert len(sources(repo)) > 20


def test_every_folder_has_its_rule(repo: Path) -> None:
    assert {folder_of(f, repo) for f in sources(repo)} <= set(MAY_INCLUDE)


def test_the_rules_have_no_cycle() -> None:
    done: set[str] = set()
    while rest := [f for f in MAY_INCLUDE if f not in done]:
        ready = [f for f in rest if MAY_INCLUDE[f] <= done]
        assert ready, f"a cycle among {rest}"
        done |= set(ready)


@pytest.mark.parametrize("folder", MAY_INCLUDE)
def test_folder_includes_only_what_it_may(repo: Path, folder: str) -> None:
    allowed = MAY_INCLUDE[folder] | {folder}
    wrong = []
    for file in sources(repo):
        if folder_of(file, repo) != folder:
            continue
        for name in includes(file):
            target = Path(name).parts[0] if "/" in name and (repo / "src" / name).exists() else None
            if ".." in Path(name).parts or (target is not None and target not in allowed):
                wrong.append(f"{file.relative_to(repo)}: {name}")
    assert wrong == []


@pytest.mark.parametrize("header", RESERVED)
def test_reserved_headers(repo: Path, header: str) -> None:
    wrong = [
        str(f.relative_to(repo))
        for f in sources(repo)
        if header in includes(f) and folder_of(f, repo) not in RESERVED[header]
    ]
    assert wrong == []


def test_python_header_comes_first(repo: Path) -> None:
    """Python.h defines feature-test macros: what is included before it sees other types than what comes after."""
    with_python = {f for f in sources(repo) if "Python.h" in includes(f)}
    assert with_python, "the kernel embeds Python"
    wrong = [str(f.relative_to(repo)) for f in with_python if includes(f)[0] != "Python.h"]
    # A header that includes it must itself be the first, wherever it is used.
    carriers = {str(f.relative_to(repo / "src")) for f in with_python if f.suffix == ".h"}
    for file in sources(repo):
        names = includes(file)
        used = [n for n in names if n in carriers or f"{folder_of(file, repo)}/{n}" in carriers]
        if used and names[0] != "Python.h" and names[0] != used[0]:
            wrong.append(str(file.relative_to(repo)))
    assert wrong == []
