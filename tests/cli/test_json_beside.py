"""Commands and file operations of `cellgate run --json` (docs/cli-json.md)."""

from __future__ import annotations

import base64
import os
import signal
from pathlib import Path
from typing import Any


def outcome(h: Any, id: Any) -> dict[str, Any]:
    """The result of the file operation with this id; what came before it is dropped."""
    while (event := h.next())["type"] != "file_result" or event["id"] != id:
        pass
    return event


def do(h: Any, name: str, **members: Any) -> dict[str, Any]:
    do.n = getattr(do, "n", 0) + 1  # type: ignore[attr-defined]
    h.say({name: members | {"id": do.n}})  # type: ignore[attr-defined]
    return outcome(h, do.n)  # type: ignore[attr-defined]


def ok(h: Any, name: str, **members: Any) -> dict[str, Any]:
    event = do(h, name, **members)
    assert event["status"] == "ok", event
    return event


def fails(h: Any, name: str, **members: Any) -> dict[str, Any]:
    event = do(h, name, **members)
    assert event["status"] == "error" and event["text"], event
    return event


def finish(h: Any, command: int) -> tuple[dict[str, Any], bytes, bytes]:
    """A command's result, and the bytes of both streams."""
    out = {"stdout": b"", "stderr": b""}
    while True:
        e = h.next()
        if e.get("command") != command:
            continue
        if e["type"] == "command_output":
            out[e["name"]] += e["text"].encode() if "text" in e else base64.b64decode(e["base64"])
        if e["type"] == "command_result":
            return e, out["stdout"], out["stderr"]


def start(h: Any, *argv: str, **members: Any) -> int:
    h.say({"exec": {"argv": list(argv)} | members})
    return h.until("command_started")["command"]


def test_a_command(host) -> None:
    h = host()
    h.until("session")
    h.say({"exec": {"argv": ["bash", "-c", "echo $A; pwd; cat; echo err >&2; exit 3"], "id": "x"}})
    started = h.next()
    assert started == {"type": "command_started", "command": started["command"], "id": "x", "line": 1}
    result, out, err = finish(h, started["command"])
    assert result == {
        "type": "command_result",
        "command": started["command"],
        "id": "x",
        "status": "ok",
        "exit_code": 3,
        "text": "",
    }
    assert out.startswith(b"\n/") and err == b"err\n"
    number = start(h, "bash", "-c", "echo $A; pwd; cat", env={"A": "1=2"}, cwd="/usr", input="whole\0")
    assert finish(h, number)[1] == b"1=2\n/usr\nwhole\0"
    h.say({"end": {}})
    assert h.end() == 0


def test_bytes_that_are_not_text(host) -> None:
    h = host()
    h.say({"exec": {"argv": ["printf", r"\377\200"]}})
    event = h.until("command_output")
    assert base64.b64decode(event["base64"]) == b"\xff\x80" and "text" not in event
    number = start(h, "od", "-An", "-tx1", input=True)
    h.say({"write": {"command": number, "base64": base64.b64encode(b"\xff\0").decode()}})
    assert h.until("command_written")["line"] == 3
    h.say({"write": {"command": number, "end": True}})
    assert finish(h, number)[1].split() == [b"ff", b"00"]


def test_the_end_of_input_ends_that_of_commands(host) -> None:
    h = host()
    number = start(h, "cat", input=True)
    h.say({"write": {"command": number, "text": "last"}})
    h.close_input()
    assert finish(h, number)[1] == b"last"
    assert h.end() == 0


def test_beside_a_cell(host) -> None:
    h = host()
    h.say({"execute": {"code": "print('go', flush=True)\nwhile True: pass"}})
    h.until("stream")
    assert finish(h, start(h, "echo", "beside"))[1] == b"beside\n"
    ok(h, "file_write", path="/tmp/a", text="x")
    h.say({"interrupt": {}})
    assert h.until("result")["status"] == "cancelled"


def test_input_that_is_not_read_holds_nothing_up(host) -> None:
    h = host()
    number = start(h, "sleep", "1000", input=True)
    for _ in range(2):
        h.say({"write": {"command": number, "text": "x" * (1 << 20)}})
    h.say({"write": {"command": number, "text": "more"}})
    h.until("command_written")
    assert "command_written" in h.until("input_error")["text"]
    assert finish(h, start(h, "echo", "beside"))[1] == b"beside\n"
    h.say({"cancel": number})
    assert finish(h, number)[0]["status"] == "cancelled"
    h.close_input()
    assert h.end() == 0


def test_signals_and_terminals(host) -> None:
    h = host()
    number = start(h, "bash", "-c", "trap 'echo got; exit 5' USR1; echo ready; while :; do sleep 0.05; done")
    h.until("command_output")
    h.say({"signal": {"command": number, "signal": signal.SIGUSR1}})
    result, out, _ = finish(h, number)
    assert (result["exit_code"], out) == (5, b"got\n")
    number = start(h, "bash", "-c", "stty size; read x; stty size", terminal={"rows": 10, "columns": 20})
    while "10 20" not in h.until("command_output").get("text", ""):
        pass
    h.say({"resize": {"command": number, "rows": 30, "columns": 40}})
    h.say({"write": {"command": number, "text": "hello\n"}})
    assert b"30 40" in finish(h, number)[1]
    number = start(h, "sleep", "1000", timeout=0.2)
    assert finish(h, number)[0]["status"] == "timeout"
    number = start(h, "bash", "-c", "kill -9 $$")
    assert finish(h, number)[0]["signal"] == 9
    number = start(h, "no-such-program")
    result = finish(h, number)[0]
    assert result["status"] == "error" and "exit_code" not in result and "no-such-program" in result["text"]


def test_files(host) -> None:
    h = host()
    ok(h, "file_mkdir", path="/tmp/d/e", mode=0o700)
    ok(h, "file_write", path="/tmp/d/a", text="one\0two", mode=0o640)
    assert ok(h, "file_read", path="/tmp/d/a")["text"] == "one\0two"
    assert ok(h, "file_read", path="/tmp/d/a", offset=4, max=2)["text"] == "tw"
    ok(h, "file_write", path="/tmp/d/b", base64=base64.b64encode(b"\xff\0").decode())
    assert base64.b64decode(ok(h, "file_read", path="/tmp/d/b")["base64"]) == b"\xff\0"
    stat = ok(h, "file_stat", path="/tmp/d/a")["content"]
    assert (stat["type"], stat["size"], stat["mode"]) == ("file", 7, 0o640)
    ok(h, "file_rename", path="/tmp/d/a", to="/tmp/d/c")
    names = {e["name"] for e in ok(h, "file_list", path="/tmp/d")["content"]["entries"]}
    assert names == {"b", "c", "e"}
    ok(h, "file_remove", path="/tmp/d")
    assert fails(h, "file_stat", path="/tmp/d")["errno"] == "ENOENT"
    assert fails(h, "file_write", path="/usr/new", text="")["errno"] == "EROFS"


def test_names_that_are_not_text(host) -> None:
    h = host()
    ok(h, "file_write", path_hex=b"/tmp/\xff\x1b".hex(), text="x")
    entries = ok(h, "file_list", path="/tmp")["content"]["entries"]
    assert b"\xff\x1b".hex() in [e.get("name_hex") for e in entries]
    assert ok(h, "file_read", path_hex=b"/tmp/\xff\x1b".hex())["text"] == "x"


def test_files_of_the_host(host, tmp_path: Path) -> None:
    h = host()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "source").write_bytes(os.urandom(3_000_000))
    ok(h, "file_put", path="/tmp/copy", host=str(outside / "source"))
    ok(h, "file_get", path="/tmp/copy", host=str(outside / "back"))
    assert (outside / "back").read_bytes() == (outside / "source").read_bytes()
    fails(h, "file_get", path="/tmp/copy", host=str(outside / "small"), max=1000)
    fails(h, "file_get", path="/tmp/none", host=str(outside / "none"))
    fails(h, "file_get", path="/tmp/none", host=str(outside / "back"))
    assert sorted(os.listdir(outside)) == ["back", "source"]
    ok(h, "file_mkdir", path="/tmp/tree/x")
    ok(h, "file_pack", path="/tmp/tree", host=str(outside / "tree.tar"))
    ok(h, "file_mkdir", path="/tmp/other")
    ok(h, "file_unpack", path="/tmp/other", host=str(outside / "tree.tar"))
    assert ok(h, "file_stat", path="/tmp/other/x")["content"]["type"] == "folder"


def test_links_lead_to_no_other_file_of_the_host(host, tmp_path: Path) -> None:
    """A cell can write to the workspace, in which a path of the host may be."""
    h = host()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    h.say({"execute": {"code": "import os; print(os.getcwd())"}})
    workspace = Path(h.until("stream")["text"].strip())
    code = f"os.symlink({str(outside)!r}, 'd'); os.symlink({str(outside / 'secret')!r}, 'f'); os.mkfifo('p')"
    h.say({"execute": {"code": code}})
    h.until("result"), h.until("result")
    ok(h, "file_write", path="/tmp/a", text="changed")
    assert "symbolic link" in fails(h, "file_get", path="/tmp/a", host=str(workspace / "d/new"))["text"]
    fails(h, "file_get", path="/tmp/a", host=str(workspace / "f"))
    fails(h, "file_get", path="/tmp/a", host=str(workspace / "p"))
    fails(h, "file_get", path="/tmp/a", host="/dev/null")
    for name in ("d/secret", "f", "p", "."):
        fails(h, "file_put", path="/tmp/b", host=str(workspace / name))
    fails(h, "file_stat", path="/tmp/b")
    assert os.listdir(outside) == ["secret"] and (outside / "secret").read_text() == "secret"
    ok(h, "file_get", path="/tmp/a", host=str(workspace / "new"))
    assert (workspace / "new").read_text() == "changed"


WRONG = [
    {"exec": {}},
    {"exec": True},
    {"exec": {"argv": []}},
    {"exec": {"argv": "true"}},
    {"exec": {"argv": ["true", 1]}},
    {"exec": {"argv": ["a\0b"]}},
    {"exec": {"argv": ["true"], "env": {"A=": "x"}}},
    {"exec": {"argv": ["true"], "env": ["A=x"]}},
    {"exec": {"argv": ["true"], "other": 1}},
    {"exec": {"argv": ["true"], "timeout": -1}},
    {"exec": {"argv": ["true"], "input": 1}},
    {"exec": {"argv": ["true"], "terminal": {"rows": 1}}},
    {"exec": {"argv": ["true"], "terminal": {"rows": 1, "columns": 70000}}},
    {"write": {"command": 99, "text": "x"}},
    {"write": {"command": -1, "end": True}},
    {"signal": {"command": 99, "signal": 9}},
    {"file_list": {}},
    {"file_list": {"path": ""}},
    {"file_list": {"path": "/a\0b"}},
    {"file_list": {"path": "/", "path_hex": "2f"}},
    {"file_list": {"path_hex": "2"}},
    {"file_list": {"path_hex": "2F"}},
    {"file_list": {"path_hex": "2f00"}},
    {"file_list": {"path": "/", "mode": 1}},
    {"file_write": {"path": "/tmp/a"}},
    {"file_write": {"path": "/tmp/a", "base64": "*"}},
    {"file_write": {"path": "/tmp/a", "text": "", "base64": ""}},
    {"file_write": {"path": "/tmp/a", "text": "", "mode": 0o4755}},
    {"file_read": {"path": "/tmp/a", "max": 1 << 30}},
    {"file_get": {"path": "/tmp/a"}},
    {"file_get": {"path": "/tmp/a", "host": ""}},
    {"file_list": {"path": "/"}, "exec": {"argv": ["true"]}},
]


def test_lines_that_are_wrong(host) -> None:
    h = host()
    h.until("session")
    for count, line in enumerate(WRONG, 1):
        h.say(line)
        error = h.next()
        assert (error["type"], error["line"]) == ("input_error", count) and error["text"], line
    h.close_input()
    assert h.end() == 0


def test_nothing_after_the_end(host) -> None:
    h = host()
    h.say({"end": {}})
    h.say({"exec": {"argv": ["true"]}})
    assert "after" in h.until("input_error")["text"]
    assert h.end() == 0


def test_a_signal_while_an_operation_waits(host, tmp_path: Path) -> None:
    h = host()
    h.say({"execute": {"code": "f = open('/tmp/big', 'w'); f.truncate(1 << 40)"}})
    h.until("result")
    folder = tmp_path / "outside"
    folder.mkdir()
    h.say({"file_get": {"path": "/tmp/big", "host": str(folder / "big"), "timeout": 0}})
    while not (names := os.listdir(folder)):
        pass
    assert names[0].startswith("big.")
    h.process.send_signal(signal.SIGTERM)
    assert h.process.wait(20) == 128 + signal.SIGTERM
    assert os.listdir(folder) == []
