"""libcellgate through ctypes, for tests: the C API as it is, with Python exceptions for negative results."""

from __future__ import annotations

import ctypes as C
import json
import os
import time
from pathlib import Path
from typing import Any

Name = str | bytes | Path


class Err(C.Structure):
    _fields_ = [("code", C.c_int), ("sys_errno", C.c_int), ("msg", C.c_char * 1000)]


class ClientOptions(C.Structure):
    _fields_ = [
        ("size", C.c_size_t),
        ("address", C.c_char_p),
        ("supervisor", C.c_char_p),
        ("preload", C.c_char_p),
        ("log_level", C.c_int),
        ("log_fd", C.c_int),
        ("timeout_ms", C.c_int64),
        ("no_spare", C.c_int),
        ("start", C.c_int),
        ("linger_ms", C.c_int64),
        ("spares", C.c_int),
        ("kernel_env", C.c_char_p),
        ("share", C.c_int),
        ("audit_key", C.c_char_p),
        ("audit_head", C.c_char_p),
        ("place", C.c_char_p),
        ("approver", C.c_char_p),
        ("connect", C.POINTER(C.c_char_p)),
    ]


class SessionOptions(C.Structure):
    _fields_ = [
        ("size", C.c_size_t),
        ("workspace", C.c_char_p),
        ("env", C.POINTER(C.c_char_p)),
        ("python_path", C.POINTER(C.c_char_p)),
        ("sandbox", C.c_int),
        ("color", C.c_int),
        ("memory_bytes", C.c_uint64),
        ("processes", C.c_uint64),
        ("file_bytes", C.c_uint64),
        ("timeout_ms", C.c_int64),
        ("approval_timeout_ms", C.c_int64),
        ("hide", C.POINTER(C.c_char_p)),
        ("working_dir", C.c_char_p),
        ("front", C.c_int),
        ("settings", C.c_char_p),
        ("ask_egress", C.c_int),
        ("cores_milli", C.c_uint64),
        ("open_files", C.c_uint64),
        ("cpu_seconds", C.c_uint64),
        ("wall_seconds", C.c_uint64),
        ("output_bytes", C.c_uint64),
        ("tier", C.c_char_p),
        ("cli_hints", C.c_int),
        ("server_requests", C.c_uint),
        ("exec", C.c_char_p),
        ("audit", C.c_char_p),
        ("deciders", C.c_int),
        ("policies", C.POINTER(C.c_char_p)),
        ("approvers", C.c_char_p),
        ("language", C.c_char_p),
        ("node", C.c_char_p),
    ]


class ExecuteOptions(C.Structure):
    _fields_ = [
        ("size", C.c_size_t),
        ("timeout_ms", C.c_int64),
        ("silent", C.c_int),
        ("allow_stdin", C.c_int),
        ("no_history", C.c_int),
        ("announce", C.c_int),
        ("extra", C.c_char_p),
        ("subshell", C.c_char_p),
        ("artifacts", C.c_int),
    ]


class Costs(C.Structure):
    _fields_ = [
        ("size", C.c_size_t),
        ("wall_us", C.c_int64),
        ("cpu_us", C.c_int64),
        ("memory_bytes", C.c_int64),
        ("written_bytes", C.c_int64),
        ("tool_calls", C.c_int64),
        ("commands", C.c_int64),
        ("connections", C.c_int64),
        ("denials", C.c_int64),
        ("shared", C.c_int),
    ]


class Buffer(C.Structure):
    _fields_ = [("data", C.c_char_p), ("len", C.c_size_t)]


class RequestOptions(C.Structure):
    _fields_ = [
        ("size", C.c_size_t),
        ("timeout_ms", C.c_int64),
        ("subshell", C.c_char_p),
        ("buffers", C.POINTER(Buffer)),
        ("n_buffers", C.c_size_t),
    ]


class ExecOptions(C.Structure):
    _fields_ = [
        ("size", C.c_size_t),
        ("argv", C.POINTER(C.c_char_p)),
        ("env", C.POINTER(C.c_char_p)),
        ("cwd", C.c_char_p),
        ("timeout_ms", C.c_int64),
        ("input", C.c_int),
        ("rows", C.c_uint16),
        ("columns", C.c_uint16),
    ]


class FunctionsOptions(C.Structure):
    _fields_ = [("size", C.c_size_t), ("ask", C.c_int)]


VALUE, RESULT, ERROR, REFUSED = range(4)  # outcomes of functions


class CellgateError(Exception):
    def __init__(self, err: Err):
        super().__init__(err.msg.decode("utf-8", "replace"))
        self.code = err.code
        self.errno = err.sys_errno


E_INVAL, E_PROTO, E_LIMIT, E_NOTFOUND, E_EXISTS, E_STATE, E_CLOSED = -3, -4, -5, -6, -7, -8, -9
E_TIMEDOUT, E_PARSE = -11, -12
TIMEOUT, CLOSED = 1, 2


def load() -> C.CDLL:
    installed = Path(os.environ["CG_PREFIX"]).glob("lib/**/libcellgate.so")
    # A wheel has no library: that of the build starts the wheel's supervisor.
    lib = C.CDLL(str(next(installed, Path(os.environ["CG_BUILD"]) / "src/client/libcellgate.so")))
    p = C.c_void_p
    for name, res, args in [
        ("cg_client_open", C.c_int, [p, C.POINTER(p), p]),
        ("cg_client_close", p, [p]),
        ("cg_session_new", C.c_int, [p, p, C.POINTER(p), p]),
        ("cg_session_attach", C.c_int, [p, C.c_char_p, C.POINTER(p), p]),
        ("cg_client_sessions", C.c_int, [p, C.POINTER(p), p]),
        ("cg_client_approvals", C.c_int, [p, C.POINTER(p), p]),
        ("cg_client_approvals_fd", C.c_int, [p, p]),
        ("cg_client_approval", C.c_int, [p, C.c_char_p, C.POINTER(p), p]),
        ("cg_client_decide", C.c_int, [p, C.c_char_p, C.c_char_p, C.c_int, C.c_char_p, p]),
        ("cg_session_request", C.c_int, [p, C.c_char_p, C.c_char_p, C.c_size_t, p, C.POINTER(C.c_uint64), p]),
        ("cg_session_free", p, [p]),
        ("cg_session_id", C.c_char_p, [p]),
        ("cg_session_info", C.c_char_p, [p]),
        ("cg_session_fd", C.c_int, [p]),
        ("cg_session_reset", C.c_int, [p, C.c_int64, p]),
        ("cg_session_add_mcp_servers", C.c_int, [p, C.c_char_p, C.c_size_t, C.c_int64, C.POINTER(p), p]),
        ("cg_session_add_functions", C.c_int, [p, C.c_char_p, C.c_char_p, C.c_size_t, p, C.POINTER(p), p]),
        ("cg_function_return", C.c_int, [p, C.c_uint64, C.c_int, C.c_char_p, C.c_size_t, p]),
        ("cg_session_execute", C.c_int, [p, C.c_char_p, C.c_size_t, p, C.POINTER(C.c_uint64), p]),
        ("cg_session_cancel", C.c_int, [p, C.c_uint64, p]),
        ("cg_session_next_event", C.c_int, [p, C.c_int64, C.POINTER(p), p]),
        ("cg_session_exec", C.c_int, [p, p, C.POINTER(C.c_uint64), p]),
        ("cg_command_write", C.c_int, [p, C.c_uint64, C.c_char_p, C.c_size_t, C.c_int64, p]),
        ("cg_command_signal", C.c_int, [p, C.c_uint64, C.c_int, p]),
        ("cg_command_resize", C.c_int, [p, C.c_uint64, C.c_uint16, C.c_uint16, p]),
        ("cg_session_files_read", C.c_int, [p, C.c_char_p, C.c_int64, C.c_int64, C.c_int64, p, p, p]),
        ("cg_session_files_write", C.c_int, [p, C.c_char_p, C.c_uint, C.c_char_p, C.c_size_t, C.c_int64, p]),
        ("cg_session_files_get", C.c_int, [p, C.c_char_p, C.c_int, C.c_int64, C.c_int64, p]),
        ("cg_session_files_put", C.c_int, [p, C.c_char_p, C.c_uint, C.c_int, C.c_int64, p]),
        ("cg_session_files_stat", C.c_int, [p, C.c_char_p, C.c_int64, p, p]),
        ("cg_session_files_list", C.c_int, [p, C.c_char_p, C.c_int64, p, p]),
        ("cg_session_files_mkdir", C.c_int, [p, C.c_char_p, C.c_uint, C.c_int64, p]),
        ("cg_session_files_remove", C.c_int, [p, C.c_char_p, C.c_int64, p]),
        ("cg_session_files_rename", C.c_int, [p, C.c_char_p, C.c_char_p, C.c_int64, p]),
        ("cg_session_files_pack", C.c_int, [p, C.c_char_p, C.c_int, C.c_int64, C.c_int64, p]),
        ("cg_session_files_unpack", C.c_int, [p, C.c_char_p, C.c_int, C.c_int64, p]),
        ("cg_session_input", C.c_int, [p, C.c_char_p, C.c_size_t, p]),
        ("cg_approval_accept", C.c_int, [p, C.c_uint64, p]),
        ("cg_approval_share", C.c_int, [p, C.c_uint64, p]),
        ("cg_approval_reject", C.c_int, [p, C.c_uint64, C.c_char_p, p]),
        ("cg_approval_expire", C.c_int, [p, C.c_uint64, C.c_char_p, p]),
        ("cg_server_request_answer", C.c_int, [p, C.c_uint64, C.c_char_p, p]),
        ("cg_server_request_decline", C.c_int, [p, C.c_uint64, p]),
        ("cg_event_refuse", C.c_int, [p, p, C.c_char_p, p]),
        ("cg_egress_decide", C.c_int, [p, C.c_uint64, C.c_int, C.c_char_p, p]),
        ("cg_event_free", p, [p]),
        ("cg_event_type", C.c_int, [p]),
        ("cg_event_type_name", C.c_char_p, [C.c_int]),
        ("cg_event_cell", C.c_uint64, [p]),
        ("cg_event_is_stderr", C.c_int, [p]),
        ("cg_event_text", p, [p, C.POINTER(C.c_size_t)]),
        ("cg_event_json", p, [p, C.POINTER(C.c_size_t)]),
        ("cg_event_mime", p, [p, C.c_char_p, C.POINTER(C.c_size_t)]),
        ("cg_event_status", C.c_int, [p]),
        ("cg_status_name", C.c_char_p, [C.c_int]),
        ("cg_event_execution_count", C.c_int64, [p]),
        ("cg_event_refused", C.c_int, [p]),
        ("cg_event_foreign", C.c_int, [p]),
        ("cg_event_costs", C.c_int, [p, p]),
        ("cg_event_artifacts", p, [p, C.POINTER(C.c_size_t)]),
        ("cg_event_n_buffers", C.c_size_t, [p]),
        ("cg_event_buffer", p, [p, C.c_size_t, C.POINTER(C.c_size_t)]),
        ("cg_event_approval", C.c_uint64, [p]),
        ("cg_event_server", C.c_char_p, [p]),
        ("cg_event_tool", C.c_char_p, [p]),
        ("cg_event_method", C.c_char_p, [p]),
        ("cg_event_arguments", p, [p, C.POINTER(C.c_size_t)]),
        ("cg_free", None, [p]),
    ]:
        f = getattr(lib, name)
        f.restype, f.argtypes = res, args
    return lib


class Event:
    """One event, copied out of the C object."""

    def __init__(self, lib: C.CDLL, ptr: C.c_void_p):
        def data(name: str) -> bytes:
            n = C.c_size_t()
            at = getattr(lib, name)(ptr, C.byref(n))
            return C.string_at(at, n.value) if at else b""

        def text(name: str) -> str:
            return data(name).decode(errors="strict" if self.type != "command_output" else "replace")

        self.type: str = lib.cg_event_type_name(lib.cg_event_type(ptr)).decode()
        self.cell: int = lib.cg_event_cell(ptr)
        self.text = text("cg_event_text")
        self.data = data("cg_event_text")
        self.json = json.loads(text("cg_event_json"))
        self.args = text("cg_event_arguments")
        self.artifacts = json.loads(text("cg_event_artifacts") or "null")
        self.stderr = bool(lib.cg_event_is_stderr(ptr))
        self.status: str = lib.cg_status_name(lib.cg_event_status(ptr)).decode()
        self.count: int = lib.cg_event_execution_count(ptr)
        self.refused = bool(lib.cg_event_refused(ptr))
        self.foreign = bool(lib.cg_event_foreign(ptr))
        costs = Costs(size=C.sizeof(Costs))
        self.costs: Costs | None = costs if lib.cg_event_costs(ptr, C.byref(costs)) == 0 else None
        self.buffers = [self._buffer(lib, ptr, i) for i in range(lib.cg_event_n_buffers(ptr))]
        self.approval: int = lib.cg_event_approval(ptr)
        self.server: str = lib.cg_event_server(ptr).decode()
        self.tool: str = lib.cg_event_tool(ptr).decode()
        self.method: str = lib.cg_event_method(ptr).decode()
        lib.cg_event_free(ptr)

    @staticmethod
    def _buffer(lib: C.CDLL, ptr: C.c_void_p, i: int) -> bytes:
        n = C.c_size_t()
        at = lib.cg_event_buffer(ptr, i, C.byref(n))
        return C.string_at(at, n.value)

    def __repr__(self) -> str:
        return f"<{self.type} cell={self.cell} {self.status} {self.text!r} {self.json}>"


class Session:
    def __init__(self, client: Client, attach: str | None = None, **opts: object):
        self.lib, self.client = client.lib, client
        o = SessionOptions(size=C.sizeof(SessionOptions))
        keep = []
        for name, value in opts.items():
            if name in ("env", "python_path", "hide", "policies"):
                arr = (C.c_char_p * (len(value) + 1))(*[v.encode() for v in value], None)
                keep.append(arr)
                value = C.cast(arr, C.POINTER(C.c_char_p))
            elif isinstance(value, dict):
                value = json.dumps(value).encode()
            elif isinstance(value, (str, Path)):
                value = str(value).encode()
            setattr(o, name, value)
        self.ptr = C.c_void_p()
        err = Err()
        if attach is not None:
            r = self.lib.cg_session_attach(client.ptr, attach.encode(), C.byref(self.ptr), C.byref(err))
        else:
            r = self.lib.cg_session_new(client.ptr, C.byref(o), C.byref(self.ptr), C.byref(err))
        if r < 0:
            raise CellgateError(err)

    def _call(self, name: str, *args: object) -> int:
        err = Err()
        r = getattr(self.lib, name)(self.ptr, *args, C.byref(err))
        if r < 0:
            raise CellgateError(err)
        return r

    def close(self) -> None:
        if self.ptr:
            self.lib.cg_session_free(self.ptr)
            self.ptr = None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def id(self) -> str:
        return self.lib.cg_session_id(self.ptr).decode()

    @property
    def info(self) -> dict:
        return json.loads(self.lib.cg_session_info(self.ptr))

    def fd(self) -> int:
        return self.lib.cg_session_fd(self.ptr)

    def reset(self, timeout_ms: int = 0) -> None:
        self._call("cg_session_reset", timeout_ms)

    def add_servers(self, servers: dict | str, timeout_ms: int = 0) -> dict:
        text = (servers if isinstance(servers, str) else json.dumps(servers)).encode()
        ret = C.c_void_p()
        self._call("cg_session_add_mcp_servers", text, len(text), timeout_ms, C.byref(ret))
        report = json.loads(C.string_at(ret.value))
        self.lib.cg_free(ret)
        return report

    def add_functions(self, name: str | bytes, tools: list | str, **opts: int) -> dict:
        text = (tools if isinstance(tools, str) else json.dumps(tools)).encode()
        o = FunctionsOptions(C.sizeof(FunctionsOptions), **opts)
        ret = C.c_void_p()
        name = name.encode() if isinstance(name, str) else name
        self._call("cg_session_add_functions", name, text, len(text), C.byref(o), C.byref(ret))
        report = json.loads(C.string_at(ret.value))
        self.lib.cg_free(ret)
        return report

    def give(self, call: int, value: object) -> None:
        """Let a function return a value."""
        self.give_text(call, VALUE, json.dumps(value))

    def give_text(self, call: int, outcome: int, text: str | bytes) -> None:
        data = text.encode() if isinstance(text, str) else text
        self._call("cg_function_return", call, outcome, data, len(data))

    def execute(self, code: str | bytes, timeout_ms: int = 0, **opts: object) -> int:
        data = code.encode() if isinstance(code, str) else code
        o = ExecuteOptions(size=C.sizeof(ExecuteOptions), timeout_ms=timeout_ms)
        for name, value in opts.items():
            if isinstance(value, dict):
                value = json.dumps(value)
            setattr(o, name, value.encode() if isinstance(value, str) else value)
        cell = C.c_uint64()
        self._call("cg_session_execute", data, len(data), C.byref(o), C.byref(cell))
        return cell.value

    def request(
        self,
        type: str,
        content: dict | str,
        buffers: list[bytes] | None = None,
        timeout_ms: int = 0,
        subshell: str = "",
    ) -> int:
        """cg_session_request(); returns the number."""
        text = (content if isinstance(content, str) else json.dumps(content)).encode()
        list_ = [Buffer(b, len(b)) for b in buffers or []]
        array = (Buffer * len(list_))(*list_)
        o = RequestOptions(C.sizeof(RequestOptions), timeout_ms, subshell.encode(), array, len(list_))
        number = C.c_uint64()
        self._call("cg_session_request", type.encode(), text, len(text), C.byref(o), C.byref(number))
        return number.value

    def ask(self, type: str, content: dict | str, **opts: object) -> Event:
        """A request and its reply; what comes before it is dropped."""
        number = self.request(type, content, **opts)  # type: ignore[arg-type]
        while True:
            e = self.until("reply")[-1]
            if e.cell == number:
                return e

    def exec(
        self,
        *argv: str | bytes,
        env: list[str] | None = None,
        cwd: str | Path | None = None,
        **opts: int,
    ) -> int:
        """cg_session_exec(); returns the number."""

        def array(items: list[str | bytes]) -> C.Array:
            return (C.c_char_p * (len(items) + 1))(*[os.fsencode(i) for i in items], None)

        o = ExecOptions(C.sizeof(ExecOptions), array(list(argv)), array(list(env or [])), None, **opts)
        o.cwd = os.fsencode(cwd) if cwd is not None else None
        number = C.c_uint64()
        self._call("cg_session_exec", C.byref(o), C.byref(number))
        return number.value

    def command(self, *argv: str | bytes, **opts: object) -> tuple[Event, bytes, bytes]:
        """Run a command to its end: its result, and what it wrote to both streams."""
        return self.wait_command(self.exec(*argv, **opts))  # type: ignore[arg-type]

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

    def file_read(self, path: Name, offset: int = 0, max: int = -1, timeout_ms: int = 0) -> bytes:
        ret, n = C.c_void_p(), C.c_size_t()
        self._call("cg_session_files_read", os.fsencode(path), offset, max, timeout_ms, C.byref(ret), C.byref(n))
        data = C.string_at(ret, n.value)
        self.lib.cg_free(ret)
        return data

    def file_write(self, path: Name, data: bytes, mode: int = 0o644, timeout_ms: int = 0) -> None:
        self._call("cg_session_files_write", os.fsencode(path), mode, data, len(data), timeout_ms)

    def file_get(self, path: Name, fd: int, timeout_ms: int = 0, max: int = -1) -> None:
        self._call("cg_session_files_get", os.fsencode(path), fd, max, timeout_ms)

    def file_put(self, path: Name, fd: int, mode: int = 0o644, timeout_ms: int = 0) -> None:
        self._call("cg_session_files_put", os.fsencode(path), mode, fd, timeout_ms)

    def _file_text(self, function: str, path: Name) -> Any:
        ret = C.c_void_p()
        self._call(function, os.fsencode(path), 0, C.byref(ret))
        text = C.string_at(ret.value)
        self.lib.cg_free(ret)
        return json.loads(text)

    def file_stat(self, path: Name) -> dict:
        return self._file_text("cg_session_files_stat", path)

    def file_list(self, path: Name) -> list[dict]:
        return self._file_text("cg_session_files_list", path)

    def file_mkdir(self, path: Name, mode: int = 0o755) -> None:
        self._call("cg_session_files_mkdir", os.fsencode(path), mode, 0)

    def file_remove(self, path: Name, timeout_ms: int = 0) -> None:
        self._call("cg_session_files_remove", os.fsencode(path), timeout_ms)

    def file_rename(self, old: Name, new: Name) -> None:
        self._call("cg_session_files_rename", os.fsencode(old), os.fsencode(new), 0)

    def file_pack(self, path: Name, fd: int, max: int = -1) -> None:
        self._call("cg_session_files_pack", os.fsencode(path), fd, max, 0)

    def file_unpack(self, path: Name, fd: int) -> None:
        self._call("cg_session_files_unpack", os.fsencode(path), fd, 0)

    def cancel(self, cell: int = 0) -> None:
        self._call("cg_session_cancel", cell)

    def share(self, approval: int) -> None:
        self._call("cg_approval_share", approval)

    def accept(self, approval: int) -> None:
        self._call("cg_approval_accept", approval)

    def reject(self, approval: int, reason: str | None = None) -> None:
        self._call("cg_approval_reject", approval, reason.encode() if reason else None)

    def expire(self, approval: int, reason: str | None = None) -> None:
        self._call("cg_approval_expire", approval, reason.encode() if reason else None)

    def answer_server(self, number: int, result: dict | str) -> None:
        text = result if isinstance(result, str) else json.dumps(result)
        self._call("cg_server_request_answer", number, text.encode())

    def decline_server(self, number: int) -> None:
        self._call("cg_server_request_decline", number)

    def decide_egress(self, request: int, decision: int, reason: str | None = None) -> None:
        self._call("cg_egress_decide", request, decision, reason.encode() if reason else None)

    def input(self, text: str | None) -> None:
        data = text.encode() if text is not None else None
        self._call("cg_session_input", data, len(data) if data else 0)

    def next(self, timeout_ms: int = 30000) -> Event | None:
        """The next event; None when none came in time; raises EOFError when the session has ended."""
        ptr = C.c_void_p()
        r = self._call("cg_session_next_event", timeout_ms, C.byref(ptr))
        if r == CLOSED:
            raise EOFError
        return None if r == TIMEOUT else Event(self.lib, ptr)

    def refuse_next(self, reason: str, timeout_ms: int = 30000) -> Event:
        """The next event, which was given to cg_event_refuse() first."""
        ptr = C.c_void_p()
        assert self._call("cg_session_next_event", timeout_ms, C.byref(ptr)) == 0
        self._call("cg_event_refuse", ptr, reason.encode())
        return Event(self.lib, ptr)

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
    def __init__(self, lib: C.CDLL | None = None, **opts: object):
        self.lib = lib or load()
        o = ClientOptions(size=C.sizeof(ClientOptions))
        supervisor = Path(os.environ["CG_PREFIX"]) / "libexec/cellgate/cellgate-supervisor"
        for name, value in {"supervisor": str(supervisor), **opts}.items():
            setattr(o, name, value.encode() if isinstance(value, str) else value)
        self.ptr = C.c_void_p()
        err = Err()
        if self.lib.cg_client_open(C.byref(o), C.byref(self.ptr), C.byref(err)) < 0:
            raise CellgateError(err)

    def session(self, **opts: object) -> Session:
        return Session(self, **opts)

    def attach(self, id: str) -> Session:
        return Session(self, attach=id)

    def sessions(self) -> list[dict]:
        ret, err = C.c_void_p(), Err()
        if self.lib.cg_client_sessions(self.ptr, C.byref(ret), C.byref(err)) < 0:
            raise CellgateError(err)
        found = json.loads(C.string_at(ret.value))
        self.lib.cg_free(ret)
        return found

    def why_private(self) -> str | None:
        self.lib.cg_client_why_private.restype = C.c_char_p
        why = self.lib.cg_client_why_private(self.ptr)
        return why and why.decode()

    def status(self) -> dict:
        ret, err = C.c_void_p(), Err()
        if self.lib.cg_client_status(self.ptr, C.byref(ret), C.byref(err)) < 0:
            raise CellgateError(err)
        found = json.loads(C.string_at(ret.value))
        self.lib.cg_free(ret)
        return found

    def _call(self, name: str, *args: object) -> int:
        err = Err()
        r = getattr(self.lib, name)(self.ptr, *args, C.byref(err))
        if r < 0:
            raise CellgateError(err)
        return r

    def _json(self, name: str, *args: object) -> dict:
        ret = C.c_void_p()
        self._call(name, *args, C.byref(ret))
        found = json.loads(C.string_at(ret.value))
        self.lib.cg_free(ret)
        return found

    def approvals(self) -> dict:
        return self._json("cg_client_approvals")

    def approvals_fd(self) -> int:
        return self._call("cg_client_approvals_fd")

    def approval(self, id: str) -> dict:
        return self._json("cg_client_approval", id.encode())

    def decide(self, id: str, digest: str, accept: bool, reason: str | None = None) -> None:
        self._call("cg_client_decide", id.encode(), digest.encode(), int(accept), reason.encode() if reason else None)

    def stop(self, force: int = 0) -> None:
        err = Err()
        if self.lib.cg_client_stop(self.ptr, force, C.byref(err)) < 0:
            raise CellgateError(err)

    def close(self) -> None:
        if self.ptr:
            self.lib.cg_client_close(self.ptr)
            self.ptr = None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
