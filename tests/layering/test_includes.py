"""Which folder includes which: dependencies point one way (docs/architecture.md), read from the sources."""

import re
from pathlib import Path

import pytest

NAMES = "sandbox/names"
ENTERING = {NAMES, "sandbox", "sandbox/inside"}
SANDBOX = ENTERING | {"base", "sandbox/settings", "sandbox/egress", "sandbox/command"}
# The rooms of one program, whose files have an order (supervisor/core/sup.h); test_circles.py checks it.
SUPERVISOR = {f"supervisor/{room}" for room in ("core", "cells", "ask", "limits", "network", "servers")}
CLI = SANDBOX | {"policy", "cli/common", "codegen", "mcp", "mcp/client", "mcp/oauth", "mcp/pins", "jupyter"}
# Folder of src/ to the folders whose headers it may include, beside its own and the public header.
MAY_INCLUDE = {
    "base": set(),
    NAMES: {"base"},
    # Init is a part of entering a sandbox, and runs what sandbox/inside has: these two need each other.
    "sandbox": {"base", NAMES, "sandbox/inside"},
    "sandbox/inside": {"base", NAMES, "sandbox"},
    "sandbox/settings": ENTERING | {"base"},
    "sandbox/egress": ENTERING | {"base", "sandbox/settings"},
    "sandbox/command": SANDBOX - {"sandbox/command"},
    "policy": {"base", "sandbox/settings"},
    "codegen": {"base"},
    "mcp": {"base"},
    "mcp/http": {"base", "mcp"},
    "mcp/oauth": {"base", "mcp", "mcp/http"},
    "mcp/pins": {"base", "mcp"},
    "mcp/client": {"base", "mcp", "mcp/http", "mcp/oauth", "mcp/pins"},
    "mcp/toolserver": {"base", "mcp", "mcp/client", "codegen"},
    "kernel": SANDBOX - {"sandbox/command"},
    "jupyter": {"base"},
    "audit": {"base", "cli/common"},
    "mcp_http": {"base", "mcp", "mcp/oauth", "cli/common", "sandbox/egress"},
    **{room: SANDBOX | {"audit"} | SUPERVISOR for room in sorted(SUPERVISOR)},
    "client": {"base", "policy"},
    "node": {"base", "cli/common", "sandbox/egress"},
    "relay": {"base"},
    "post": {"base", "mcp", "mcp/http"},
    "search": {"base", "sandbox/settings"},
    "selftest/inside": {NAMES},  # the table of protected names: each of them is tried
    "selftest/host": {"base", "cli/common"},
    "cli/common": SANDBOX | {"policy"},
    "cli/run": CLI,
    "cli/mcp": CLI,
    "cli/mcp_serve": CLI,
    "cli/jupyter": CLI,
    "cli/sandbox": CLI,
    "cli": CLI,
}
TOGETHER = ({"sandbox", "sandbox/inside"}, SUPERVISOR)
# Headers of libraries that only one folder may see.
RESERVED = {
    "Python.h": {"kernel"},
    "curl/curl.h": {"mcp/http"},
    "sqlite3.h": {"audit"},
    "zmq.h": {"jupyter"},
    "microhttpd.h": {"mcp_http", "node"},
    "gnutls/gnutls.h": {"mcp_http"},
    "gnutls/abstract.h": {"mcp_http"},
    "gnutls/crypto.h": {"mcp_http"},
}
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.M)


def sources(repo: Path) -> list[Path]:
    return sorted(p for p in (repo / "src").rglob("*.[ch]"))


def includes(file: Path) -> list[str]:
    return INCLUDE.findall(file.read_text())


def folder_of(file: Path, repo: Path) -> str:
    return str(file.relative_to(repo / "src").parent)


def test_sources_are_found(repo: Path) -> None:
    assert len(sources(repo)) > 20


def test_every_folder_has_its_rule(repo: Path) -> None:
    assert {folder_of(f, repo) for f in sources(repo)} == set(MAY_INCLUDE)


def test_the_rules_have_no_cycle() -> None:
    done: set[str] = set()
    while rest := [f for f in MAY_INCLUDE if f not in done]:
        ready = [f for f in rest if MAY_INCLUDE[f] - set().union(*(t for t in TOGETHER if f in t)) <= done]
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
            target = str(Path(name).parent) if "/" in name and (repo / "src" / name).exists() else None
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


def test_headers_of_util_are_not_repeated(repo: Path) -> None:
    """Nearly every header of ours brings base/util.h, and that the headers of the C library that most files need."""
    names = {str(f.relative_to(repo / "src")): includes(f) for f in sources(repo)}
    brings, found = {"base/util.h"}, True
    while found:
        found = {n for n, names_in in names.items() if n.endswith(".h") and brings & set(names_in)} - brings
        brings |= found
    everyday = set(names["base/util.h"])
    wrong = [
        f"{file}: {name}"
        for file, names_in in names.items()
        for name in names_in
        if name in everyday | {"base/util.h"} and brings & set(names_in) - {name}
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


def test_no_view_of_files_is_made_of_the_process_own_environment(repo: Path) -> None:
    """The zygote has no variables of the user's and a shared supervisor another client's: HOME and PATH come with requests."""
    reads = {"getenv": r"\b(?:secure_)?getenv\(", "environ": r"\bextern char \*\*environ\b"}
    # They hand it on: to programs that they start, and the user's proxies to the relay and to what sends heads.
    may = {
        "environ": {
            "supervisor/core/audit.c",
            "supervisor/ask/broker.c",
            "supervisor/network/egress.c",
            "sandbox/egress/client.c",
            "sandbox/egress/doors_client.c",
        }
    }
    wrong = [
        f"{f.relative_to(repo / 'src')}: {what}"
        for f in sources(repo)
        for what, how in reads.items()
        if folder_of(f, repo).split("/")[0] in ("sandbox", "kernel", "supervisor")
        and re.search(how, f.read_text())
        and str(f.relative_to(repo / "src")) not in may.get(what, set()) | {"supervisor/core/main.c"}
    ]
    assert wrong == []
