"""The C API event by event, through the Python package's binding of it: numbers of cells, and exceptions for errors."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

BUILD = Path(os.environ.get("CG_BUILD", Path(__file__).parent.parent / "build/test"))
PREFIX = Path(os.environ.get("CG_PREFIX", BUILD / "root"))
_package = "lib/cellgate/package"
# A wheel has no package there: that of the build starts the wheel's supervisor.
sys.path.insert(0, str(PREFIX / _package if (PREFIX / _package).is_dir() else BUILD / "root" / _package))

from cellgate._cellgate import ffi, lib  # noqa: E402
from cellgate._core import Arguments, take_text  # noqa: E402
from cellgate._errors import CellgateError as CellgateError  # noqa: E402
from cellgate._errors import check  # noqa: E402

Name = str | bytes | Path

VALUE, RESULT, ERROR, REFUSED = range(4)  # outcomes of functions
E_INVAL, E_PROTO, E_LIMIT, E_NOTFOUND, E_EXISTS, E_STATE, E_CLOSED = -3, -4, -5, -6, -7, -8, -9
E_TIMEDOUT, E_PARSE = -11, -12


def _options(kind: str, members: dict[str, Any]) -> Any:
    """The struct cg_KIND_options."""
    args = Arguments()

    def convert(value: Any) -> Any:
        if isinstance(value, dict):
            return args.json(value)
        if isinstance(value, list | tuple):
            return args.texts(value)
        return args.text(value) if isinstance(value, str | bytes | Path) else value

    return args.options(f"cg_{kind}_options", **{name: convert(value) for name, value in members.items()})


def _call(function: str, *args: Any) -> int:
    """A C function whose last argument is the error; raises where it fails."""
    err = ffi.new("struct cg_err *")
    return check(getattr(lib, function)(*args, err), err)


def _call_json(function: str, *args: Any) -> Any:
    """The same where the last argument before the error returns a text."""
    ret = ffi.new("char **")
    _call(function, *args, ret)
    return json.loads(take_text(ret[0]))


def _json(value: object) -> bytes:
    return (value if isinstance(value, str) else json.dumps(value)).encode()


def _text(value: str | None) -> Any:
    return ffi.NULL if value is None else value.encode()


class Event:
    """One event, copied out of the C object."""

    def __init__(self, ptr: Any):
        def data(get: Any, *args: Any) -> bytes:
            n = ffi.new("size_t *")
            at = get(ptr, *args, n)
            return bytes(ffi.buffer(at, n[0])) if at else b""

        def name(text: Any) -> str:
            return ffi.string(text).decode()

        self.type = name(lib.cg_event_type_name(lib.cg_event_type(ptr)))
        self.cell: int = lib.cg_event_cell(ptr)
        self.data = data(lib.cg_event_text)
        self.text = self.data.decode(errors="strict" if self.type != "command_output" else "replace")
        self.json = json.loads(data(lib.cg_event_json))
        self.args = data(lib.cg_event_arguments).decode()
        self.artifacts = json.loads(data(lib.cg_event_artifacts) or "null")
        self.stderr = bool(lib.cg_event_is_stderr(ptr))
        self.status = name(lib.cg_status_name(lib.cg_event_status(ptr)))
        self.count: int = lib.cg_event_execution_count(ptr)
        self.refused = bool(lib.cg_event_refused(ptr))
        self.foreign = bool(lib.cg_event_foreign(ptr))
        costs = ffi.new("struct cg_costs *", {"size": ffi.sizeof("struct cg_costs")})
        self.costs: Any = costs if lib.cg_event_costs(ptr, costs) == 0 else None
        self.buffers = [data(lib.cg_event_buffer, i) for i in range(lib.cg_event_n_buffers(ptr))]
        self.approval: int = lib.cg_event_approval(ptr)
        self.server = name(lib.cg_event_server(ptr))
        self.tool = name(lib.cg_event_tool(ptr))
        self.method = name(lib.cg_event_method(ptr))
        lib.cg_event_free(ptr)

    def __repr__(self) -> str:
        return f"<{self.type} cell={self.cell} {self.status} {self.text!r} {self.json}>"


class Session:
    def __init__(self, client: Client, attach: str | None = None, **opts: object):
        self.client = client
        ret = ffi.new("struct cg_session **")
        if attach is not None:
            _call("cg_session_attach", client.ptr, attach.encode(), ret)
        else:
            _call("cg_session_new", client.ptr, _options("session", opts), ret)
        self.ptr = ret[0]

    def _call(self, name: str, *args: object) -> int:
        return _call(name, self.ptr, *args)

    def _number(self, name: str, *args: object) -> int:
        """The same for what begins a cell, a request or a command: its number."""
        number = ffi.new("uint64_t *")
        _call(name, self.ptr, *args, number)
        return number[0]

    def close(self) -> None:
        if self.ptr:
            lib.cg_session_free(self.ptr)
            self.ptr = ffi.NULL

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def id(self) -> str:
        return ffi.string(lib.cg_session_id(self.ptr)).decode()

    @property
    def info(self) -> dict:
        return json.loads(ffi.string(lib.cg_session_info(self.ptr)))

    def fd(self) -> int:
        return lib.cg_session_fd(self.ptr)

    def add_event(self, type: str, message: str, data: dict | None = None) -> None:
        text = json.dumps(data).encode() if data else ffi.NULL
        self._call("cg_session_add_event", type.encode(), message.encode(), text)

    def reset(self, timeout_ms: int = 0) -> None:
        self._call("cg_session_reset", timeout_ms)

    def add_servers(self, servers: dict | str, timeout_ms: int = 0) -> dict:
        text = _json(servers)
        return _call_json("cg_session_add_mcp_servers", self.ptr, text, len(text), timeout_ms)

    def add_functions(self, name: str | bytes, tools: list | str, **opts: int) -> dict:
        text = _json(tools)
        args = os.fsencode(name), text, len(text), _options("functions", opts)
        return _call_json("cg_session_add_functions", self.ptr, *args)

    def give(self, call: int, value: object) -> None:
        """Let a function return a value."""
        self.give_text(call, VALUE, json.dumps(value))

    def give_text(self, call: int, outcome: int, text: str | bytes) -> None:
        data = text.encode() if isinstance(text, str) else text
        self._call("cg_function_return", call, outcome, data, len(data))

    def execute(self, code: str | bytes, **opts: object) -> int:
        data = code.encode() if isinstance(code, str) else code
        return self._number("cg_session_execute", data, len(data), _options("execute", opts))

    def request(self, type: str, content: dict | str, buffers: list[bytes] | None = None, **opts: object) -> int:
        """cg_session_request(); returns the number."""
        text, array = _json(content), Arguments().buffers(buffers or [])
        o = _options("request", {**opts, "buffers": array, "n_buffers": len(array)})
        return self._number("cg_session_request", type.encode(), text, len(text), o)

    def ask(self, type: str, content: dict | str, **opts: object) -> Event:
        """A request and its reply; what comes before it is dropped."""
        number = self.request(type, content, **opts)  # type: ignore[arg-type]
        while True:
            e = self.until("reply")[-1]
            if e.cell == number:
                return e

    def exec(self, *argv: str | bytes, **opts: object) -> int:
        """cg_session_exec(); returns the number."""
        return self._number("cg_session_exec", _options("exec", {"argv": argv, **opts}))

    def command(self, *argv: str | bytes, **opts: object) -> tuple[Event, bytes, bytes]:
        """Run a command to its end: its result, and what it wrote to both streams."""
        return self.wait_command(self.exec(*argv, **opts))

    def wait_command(self, number: int, timeout_ms: int = 30000) -> tuple[Event, bytes, bytes]:
        """What comes before its result and is not its output is dropped."""
        out: dict[bool, list[bytes]] = {False: [], True: []}
        while True:
            e = self.next(timeout_ms)
            assert e is not None, f"no event in {timeout_ms} ms after {out}"
            if e.cell == number and e.type == "command_output":
                out[e.stderr].append(e.data)
            if e.cell == number and e.type == "command_result":
                return e, b"".join(out[False]), b"".join(out[True])

    def write(self, command: int, data: bytes, timeout_ms: int = 10000) -> int:
        return self._call("cg_command_write", command, data, len(data), timeout_ms)

    def signal(self, command: int, sig: int) -> None:
        self._call("cg_command_signal", command, sig)

    def resize(self, command: int, rows: int, columns: int) -> None:
        self._call("cg_command_resize", command, rows, columns)

    def _file(self, name: str, path: Name, *args: object) -> int:
        return self._call(f"cg_session_files_{name}", os.fsencode(path), *args)

    def file_read(self, path: Name, offset: int = 0, max: int = -1, timeout_ms: int = 0) -> bytes:
        ret, n = ffi.new("char **"), ffi.new("size_t *")
        self._file("read", path, offset, max, timeout_ms, ret, n)
        data = bytes(ffi.buffer(ret[0], n[0]))
        lib.cg_free(ret[0])
        return data

    def file_write(self, path: Name, data: bytes, mode: int = 0o644, timeout_ms: int = 0) -> None:
        self._file("write", path, mode, data, len(data), timeout_ms)

    def file_get(self, path: Name, fd: int, timeout_ms: int = 0, max: int = -1) -> None:
        self._file("get", path, fd, max, timeout_ms)

    def file_put(self, path: Name, fd: int, mode: int = 0o644, timeout_ms: int = 0) -> None:
        self._file("put", path, mode, fd, timeout_ms)

    def file_stat(self, path: Name) -> dict:
        return _call_json("cg_session_files_stat", self.ptr, os.fsencode(path), 0)

    def file_list(self, path: Name) -> list[dict]:
        return _call_json("cg_session_files_list", self.ptr, os.fsencode(path), 0)

    def file_mkdir(self, path: Name, mode: int = 0o755) -> None:
        self._file("mkdir", path, mode, 0)

    def file_remove(self, path: Name, timeout_ms: int = 0) -> None:
        self._file("remove", path, timeout_ms)

    def file_rename(self, old: Name, new: Name) -> None:
        self._file("rename", old, os.fsencode(new), 0)

    def file_pack(self, path: Name, fd: int, max: int = -1) -> None:
        self._file("pack", path, fd, max, 0)

    def file_unpack(self, path: Name, fd: int) -> None:
        self._file("unpack", path, fd, 0)

    def cancel(self, cell: int = 0) -> None:
        self._call("cg_session_cancel", cell)

    def share(self, approval: int) -> None:
        self._call("cg_approval_share", approval)

    def accept(self, approval: int) -> None:
        self._call("cg_approval_accept", approval)

    def reject(self, approval: int, reason: str | None = None) -> None:
        self._call("cg_approval_reject", approval, _text(reason))

    def expire(self, approval: int, reason: str | None = None) -> None:
        self._call("cg_approval_expire", approval, _text(reason))

    def answer_server(self, number: int, result: dict | str) -> None:
        self._call("cg_server_request_answer", number, _json(result))

    def decline_server(self, number: int) -> None:
        self._call("cg_server_request_decline", number)

    def decide_egress(self, request: int, decision: int, reason: str | None = None) -> None:
        self._call("cg_egress_decide", request, decision, _text(reason))

    def input(self, text: str | None) -> None:
        self._call("cg_session_input", _text(text), len(text.encode()) if text else 0)

    def next_ptr(self, timeout_ms: int = 30000) -> Any:
        """The next event's C object; None when none came in time; raises EOFError when the session has ended."""
        ret = ffi.new("struct cg_event **")
        r = self._call("cg_session_next_event", timeout_ms, ret)
        if r == lib.CG_CLOSED:
            raise EOFError
        return None if r == lib.CG_TIMEOUT else ret[0]

    def next(self, timeout_ms: int = 30000) -> Event | None:
        ptr = self.next_ptr(timeout_ms)
        return None if ptr is None else Event(ptr)

    def refuse_next(self, reason: str, timeout_ms: int = 30000) -> Event:
        """The next event, which was given to cg_event_refuse() first."""
        ptr = self.next_ptr(timeout_ms)
        assert ptr is not None
        self._call("cg_event_refuse", ptr, reason.encode())
        return Event(ptr)
    def until(self, type: str, timeout_ms: int = 30000) -> list[Event]:
        """All events up to and with the first of that type."""
        got: list[Event] = []
        end = time.monotonic() + timeout_ms / 1000
        while True:
            e = self.next(max(0, int((end - time.monotonic()) * 1000)))
            if e is None:
                raise TimeoutError(f"no {type} in {timeout_ms} ms; got {got}")
            got.append(e)
            if e.type == type:
                return got

    def each(self, *types: str) -> list[Event]:
        """The first event of each type, in whatever order they come."""
        got: dict[str, Event] = {}
        while not set(types) <= set(got):
            e = self.next(30000)
            if e is None:
                raise TimeoutError(f"not all of {types}; got {got}")
            got.setdefault(e.type, e)
        return [got[t] for t in types]

    def run(self, code: str, decide: object = None, answer: object = None, **opts: object) -> Outcome:
        """Runs a cell to its result.

        `decide(event)` returns True, False or a reason for each approval (default: fail), and `answer(event)` the answer
        to a question of an MCP server.
        """
        self.execute(code, **opts)
        out = Outcome()
        while True:
            e = self.next(60000)
            assert e is not None, f"no event in 60 s after {out.events}"
            out.events.append(e)
            if e.type == "approval_request":
                assert decide is not None, f"unexpected approval request {e.method} {e.server}.{e.tool}"
                decision = decide(e)
                self.accept(e.approval) if decision is True else self.reject(e.approval, decision or None)
            if e.type == "server_request":
                assert answer is not None, f"unexpected question {e.json}"
                self.answer_server(e.approval, answer(e))
            if e.type == "result":
                return out


class Outcome:
    def __init__(self) -> None:
        self.events: list[Event] = []

    @property
    def result(self) -> Event:
        return self.events[-1]

    @property
    def status(self) -> str:
        return self.result.status

    @property
    def stdout(self) -> str:
        return "".join(e.text for e in self.events if e.type == "stream" and not e.stderr)

    @property
    def stderr(self) -> str:
        return "".join(e.text for e in self.events if e.type == "stream" and e.stderr)

    @property
    def value(self) -> str | None:
        for e in self.events:
            if e.type == "execute_result":
                return e.json["data"]["text/plain"]
        return None

    @property
    def error(self) -> dict | None:
        return next((e.json for e in self.events if e.type == "error"), None)

    def __repr__(self) -> str:
        return repr(self.events)


class Client:
    def __init__(self, **opts: object):
        supervisor = PREFIX / "libexec/cellgate/cellgate-supervisor"
        ret = ffi.new("struct cg_client **")
        _call("cg_client_open", _options("client", {"supervisor": supervisor, **opts}), ret)
        self.ptr = ret[0]

    def session(self, **opts: object) -> Session:
        return Session(self, **opts)

    def attach(self, id: str) -> Session:
        return Session(self, attach=id)

    def sessions(self) -> list[dict]:
        return _call_json("cg_client_sessions", self.ptr)

    def why_private(self) -> str | None:
        why = lib.cg_client_why_private(self.ptr)
        return ffi.string(why).decode() if why else None

    def status(self) -> dict:
        return _call_json("cg_client_status", self.ptr)

    def approvals(self) -> dict:
        return _call_json("cg_client_approvals", self.ptr)

    def approvals_fd(self) -> int:
        return _call("cg_client_approvals_fd", self.ptr)

    def approval(self, id: str) -> dict:
        return _call_json("cg_client_approval", self.ptr, id.encode())

    def decide(self, id: str, digest: str, accept: bool, reason: str | None = None) -> None:
        _call("cg_client_decide", self.ptr, id.encode(), digest.encode(), int(accept), _text(reason))

    def jobs(self) -> list[dict]:
        return _call_json("cg_client_jobs", self.ptr)

    def events(self, **opts: object) -> dict:
        return _call_json("cg_client_events", self.ptr, _options("events", opts))

    def kill(self, session: str) -> None:
        _call("cg_client_session_kill", self.ptr, os.fsencode(session))

    def cancel(self, job: str) -> None:
        _call("cg_client_job_cancel", self.ptr, os.fsencode(job))

    def stop(self, force: int = 0) -> None:
        _call("cg_client_stop", self.ptr, force)

    def close(self) -> None:
        if self.ptr:
            lib.cg_client_close(self.ptr)
            self.ptr = ffi.NULL

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
