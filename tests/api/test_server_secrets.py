"""Values of variables in MCP servers' definitions: no cell sees them, and the host's texts and logs have them masked."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from cellgate_api import CellgateError, Client, Session
from server_definitions import PYTHON

PROBE = str(Path(__file__).parent / "probe_server.py")
SECRET = "sk-3141592/653 589'79\"32é&=384"
WORD = "hunter2"
# What a cell could find out: errors of import and of calls, and all that is in its files.
LOOK = """
import pathlib, traceback
def attempt(code):
    try:
        exec(code)
    except BaseException:
        traceback.print_exc()
attempt("import mcptools.s")
attempt("from mcptools.s import folder; folder.run(what='x')")
attempt("import mcptools; print(mcptools.servers(), mcptools.tools('s'))")
import mcptools
for f in pathlib.Path(mcptools.__file__).parent.rglob("*.py"):
    print(f.read_text())
"""


def forms(secret: str) -> set[str]:
    """How a program may show it."""
    raw = secret.encode()
    return {
        *(secret, quote(secret), quote(secret, safe=""), json.dumps(secret)[1:-1], repr(secret)[1:-1]),
        *(json.dumps(secret, ensure_ascii=False)[1:-1], raw.hex(), raw.hex().upper(), secret[:12], secret[-18:]),
        *(base64.b64encode(raw).decode().rstrip("=")[:-1], base64.urlsafe_b64encode(b"u:" + raw).decode()[4:-4]),
    }


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory, prefix: Path) -> Iterator[tuple[Client, Path]]:
    """A client whose supervisor logs all that it can."""
    path = tmp_path_factory.mktemp("secrets") / "log"
    with pytest.MonkeyPatch.context() as m, path.open("w") as f:
        for name, text in (("CG_PREFIX", str(prefix)), ("CG_T_SECRET", SECRET), ("CG_T_WORD", WORD)):
            m.setenv(name, text)
        with Client(log_level=4, log_fd=f.fileno()) as c:
            yield c, path


def all_texts(s: Session, servers: dict[str, Any]) -> tuple[str, str]:
    """What the host gets about servers that fail, and what a cell finds out."""
    host = ""
    try:
        host += json.dumps(s.add_servers(servers), ensure_ascii=False)
    except CellgateError as e:
        host += str(e)
    out = s.run(LOOK, lambda _: True)
    for e in out.events:
        if e.type in ("notice", "denied", "progress"):
            host += f"\n{e.text}"
    return host, out.stdout + out.stderr + repr(out.error)


GOOD = {"command": PYTHON, "args": [PROBE]}
BOTH = "${CG_T_SECRET} ${CG_T_WORD}"
ERROR = "import sys, json\ninput()\nprint(json.dumps({'jsonrpc': '2.0', 'id': 1, 'error': {'code': 1, 'message': sys.argv[1]}}))"
FORMS = (
    "import sys, json, base64, urllib.parse as u\ns = sys.argv[1]\nb = s.encode()\n"
    "print(repr(s), json.dumps(s), u.quote(s), u.quote(s, safe=''), b.hex(), base64.b64encode(b), base64.b64encode(b'u:' + b),"
    " s[:20], s[:9] + chr(10) + s[9:], ascii(s), file=sys.stderr)\nsys.exit(3)"
)
DEFINITIONS: dict[str, dict[str, Any]] = {
    "arguments": {"command": PYTHON, "args": [PROBE, "--token=${CG_T_SECRET}", "${CG_T_WORD}"], "env": {"REFUSE": "1"}},
    "command": {"command": "/no/${CG_T_SECRET}/${CG_T_WORD}/server"},
    "folder": {**GOOD, "cwd": "/no/${CG_T_SECRET}/${CG_T_WORD}"},
    "environment": {**GOOD, "env": {"REFUSE": BOTH}},
    "url": {"url": "http://127.0.0.1:9/${CG_T_SECRET}?k=${CG_T_WORD}", "startTimeout": 3},
    "host": {"url": "http://${CG_T_WORD}.invalid/mcp", "startTimeout": 5},
    "relative": {"command": "./${CG_T_SECRET}/${CG_T_WORD}"},
    "writable": {"command": PYTHON, "args": ["{workspace}/${CG_T_WORD}.py"]},
    "sandbox": {**GOOD, "sandbox": "/no/${CG_T_SECRET}/${CG_T_WORD}.json"},
    "wrong type": {**GOOD, "cwd": BOTH},
    "no answer": {"command": "sh", "args": ["-c", 'echo "$0" >&2; sleep 60', BOTH], "startTimeout": 1},
    "wrong answer": {"command": PYTHON, "args": ["-c", ERROR, BOTH], "era": "legacy"},
    "forms": {"command": PYTHON, "args": ["-c", FORMS, "${CG_T_SECRET}"]},
}


@pytest.mark.parametrize("how", DEFINITIONS)
def test_no_text_shows_them(log: tuple[Client, Path], workspace: Path, how: str) -> None:
    client, path = log
    (workspace / f"{WORD}.py").write_text("")
    text = json.dumps(DEFINITIONS[how]).replace("{workspace}", str(workspace))
    with client.session(workspace=workspace) as s:
        host, cell = all_texts(s, {"s": json.loads(text), "t": {**GOOD, "args": [PROBE, "other"]}})
    assert "the host application has the reason" in cell
    for shown in (host, cell, path.read_text()):
        for form in (*forms(SECRET), WORD):
            assert form not in shown, (form, shown)
    assert '"s"' in host and len(host) > 60  # it is told what is wrong
    if how == "arguments":
        assert "usage error: ['--token=***" in host and "usage" not in cell


def test_a_server_that_dies_in_a_call(log: tuple[Client, Path], workspace: Path) -> None:
    client, path = log
    with client.session(workspace=workspace) as s:
        s.add_servers({"s": {"command": PYTHON, "args": [PROBE, "--token=${CG_T_SECRET}", "${CG_T_WORD}"]}})
        out = s.run("from mcptools.s import die\ndie.run(what='/no/such/folder')", lambda _: True)
    cell = out.stdout + out.stderr + repr(out.error)
    (notice,) = [e.text for e in out.events if e.type == "notice" and "failed in the middle" in e.text]
    assert "exit status 3" in cell and "usage error" not in cell and "the host application has the reason" in cell
    assert "usage error: ['--token=***" in notice
    for shown in (cell, notice, path.read_text()):
        assert not [f for f in (*forms(SECRET), WORD) if f in shown]


@pytest.mark.parametrize(
    "argv", ["run --mcp FILE -c IMPORT", "run --mcp FILE --json -c IMPORT", "mcp tools --mcp FILE s"]
)
def test_commands(run_cellgate: Callable[..., Any], tmp_path: Path, argv: str) -> None:
    file = tmp_path / "servers.json"
    file.write_text(json.dumps({"mcpServers": {"s": DEFINITIONS["arguments"], "t": GOOD}}))
    (tmp_path / "w").mkdir()
    words = [{"FILE": str(file), "IMPORT": "import mcptools.s"}.get(word, word) for word in argv.split()]
    done = run_cellgate(*words, cwd=tmp_path / "w", env={"CG_T_SECRET": SECRET, "CG_T_WORD": WORD}, timeout=120)
    shown = done.stdout + done.stderr
    assert "usage error: ['--token=***" in shown
    assert not [f for f in (*forms(SECRET), WORD) if f in shown], shown


def test_values_that_everybody_knows_are_shown(log: tuple[Client, Path], workspace: Path) -> None:
    """HOME and the like, which servers inherit, and defaults that the file itself has."""
    client, _ = log
    with client.session(workspace=workspace) as s:
        host, _ = all_texts(s, {"s": {"command": "${HOME}/no/${CG_T_NONE:-default}/server"}})
    assert f"{os.environ['HOME']}/no/default/server" in host
