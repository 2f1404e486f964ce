"""The debugger: requests of the Debug Adapter Protocol, answered by debugpy or by this module.

debugpy listens on the loopback interface, which in a sandbox is the kernel's own, accepts our
connection and closes its socket. This code runs in the thread of the control shell, or in the one
that reads messages of debugpy.
"""

# mypy: allow-untyped-calls
# Most of IPython has no annotations.
from __future__ import annotations

import ast
import importlib
import importlib.util
import itertools
import json
import os
import socket
import sys
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import _cellgate
from cellgate_kernel import errors
from cellgate_kernel.request import field, parse_object
from cellgate_kernel.variables import Explorer, is_shown

if TYPE_CHECKING:
    from cellgate_kernel.kernel import Kernel

Message = dict[str, Any]

HASH_SEED = 0xC70F6907
# Time limits for debugpy and the main thread, in seconds; the supervisor's limit is 10.
_ANSWER_S = 8.0
_START_S = 8.0
_MAX_HEADER = 256
_MAX_MESSAGE = 16 << 20
# a thread of pydevd
_STATE_RUN, _STATE_SUSPEND = 1, 2


# True if debugpy is installed; determined in the zygote without importing it.
installed = importlib.util.find_spec("debugpy") is not None


def cell_folder() -> str:
    """The folder of the files of cells, which are shown in a debugger."""
    import tempfile

    return os.path.join(tempfile.gettempdir(), f"ipykernel_{os.getpid()}")


def cell_file(code: str) -> str:
    """The file name of a cell; front-ends compute the same name from the code."""
    number = _cellgate.murmur2(code.encode("utf-8", "replace"), HASH_SEED)
    return os.path.join(cell_folder(), f"{number}.py")


def is_cell(file: str) -> bool:
    """Return True if code with this file name is a cell."""
    return file.startswith(("<Cell In[", cell_folder() + os.sep))


class DebugFailure(Exception):
    """A request cannot be answered; the text is shown to the front-end's user."""


class Connection:
    """The connection to debugpy."""

    def __init__(self, address: tuple[str, int], on_event: Callable[[Message], None]) -> None:
        self._socket = socket.create_connection(address, timeout=_START_S)
        self._socket.settimeout(None)
        self._file = self._socket.makefile("rb")
        self._numbers = itertools.count(1)
        self._answers: dict[int, SimpleQueue[Message]] = {}
        self._on_event = on_event
        reader = threading.Thread(target=self._read, name="cellgate debugger", daemon=True)
        hide_thread(reader)
        reader.start()

    def ask(self, command: str, arguments: Any) -> Message:
        """Send a request and wait for the response. Raises DebugFailure without one."""
        number = next(self._numbers)
        queue: SimpleQueue[Message] = SimpleQueue()
        self._answers[number] = queue
        data = json.dumps({"type": "request", "seq": number, "command": command, "arguments": arguments}).encode()
        try:
            self._socket.sendall(b"Content-Length: %d\r\n\r\n%s" % (len(data), data))
            return queue.get(timeout=_ANSWER_S)
        except Empty:
            raise DebugFailure(f"debugpy has not answered {command} in {_ANSWER_S:.0f} s") from None
        except OSError as e:
            raise DebugFailure(f"the connection to debugpy is broken: {e}") from None
        finally:
            self._answers.pop(number, None)

    def _read(self) -> None:
        _cellgate.cell.set(0)
        try:
            while (message := self._next()) is not None:
                if message.get("type") == "response":
                    queue = self._answers.get(message.get("request_seq", -1))
                    if queue is not None:
                        queue.put(message)
                else:
                    self._on_event(message)
        except (OSError, ValueError):
            pass
        for queue in list(self._answers.values()):
            queue.put({"success": False, "message": "the connection to debugpy is broken"})

    def _next(self) -> Message | None:
        length = -1
        while line := self._file.readline(_MAX_HEADER).strip():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        if not 0 <= length <= _MAX_MESSAGE:
            return None
        return parse_object(self._file.read(length), "debugpy's message")


def leave_stop() -> None:
    """Keep pydevd from stopping the thread again after an interrupt has ended a stop.

    From Python 3.12 on pydevd checks at every line whether the thread has to stop, also while the
    traceback is made, and does not report such a stop.
    """
    info: Any = getattr(threading.current_thread(), "additional_info", None)
    if getattr(info, "pydev_state", None) == _STATE_SUSPEND:
        info.pydev_step_cmd = info.pydev_original_step_cmd = -1
        info.pydev_step_stop = None
        info.pydev_state = _STATE_RUN


def hide_thread(thread: threading.Thread) -> None:
    """Exclude this thread from pydevd: it has to run while the others are stopped."""
    thread.pydev_do_not_trace = True  # type: ignore[attr-defined]
    thread.is_pydev_daemon_thread = True  # type: ignore[attr-defined]


class Debugger:
    """Answers debug requests."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._connection: Connection | None = None
        self._started = False
        self._capabilities: Message = {}
        self._attached = False
        self._breakpoints: dict[str, list[Any]] = {}
        self._stopped: set[int] = set()
        self._explorer = Explorer()
        self._numbers = itertools.count(1)
        self._own: dict[str, Callable[[Message], Message]] = {
            "debugInfo": self._info,
            "dumpCell": self._dump_cell,
            "source": self._source,
            "initialize": self._initialize,
            "attach": self._attach,
            "configurationDone": self._configuration_done,
            "setBreakpoints": self._set_breakpoints,
            "stackTrace": self._stack_trace,
            "variables": self._variables,
            "inspectVariables": self._inspect_variables,
            "richInspectVariables": self._rich_inspect,
            "copyToGlobals": self._copy_to_globals,
            "modules": self._modules,
            "disconnect": self._disconnect,
        }

    def answer(self, request: Message) -> Message:
        """The response to a request."""
        command = field(request, "command", str)
        response: Message = {
            "type": "response",
            "seq": next(self._numbers),
            "request_seq": request.get("seq", 0),
            "command": command,
            "success": True,
        }
        try:
            arguments = request.get("arguments") or {}
            if not isinstance(arguments, dict):
                raise DebugFailure('"arguments" is not an object')
            own = self._own.get(command)
            response["body"] = own(arguments) if own is not None else self._forward(command, arguments)
        except DebugFailure as e:
            response |= {"success": False, "message": str(e)}
        except Exception as e:
            response |= {"success": False, "message": f"{type(e).__name__}: {errors.text_of(e)}"}
        return response

    def _forward(self, command: str, arguments: Message) -> Message:
        if self._connection is None or not self._started:
            raise DebugFailure(f"{command}: the debugger is not started")
        response = self._connection.ask(command, arguments)
        if not response.get("success"):
            raise DebugFailure(str(response.get("message") or f"debugpy refuses {command}"))
        body: Message = response.get("body") or {}
        return body

    # ---------------------------------------------------------------- start and end

    def _listen(self) -> tuple[str, int]:
        """Start debugpy; called in the main thread, which it then traces."""
        before = os.environ.get("PYDEVD_DISABLE_FILE_VALIDATION")
        os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"  # no warning about frozen modules
        try:
            debugpy = importlib.import_module("debugpy")
            host, port = debugpy.listen(("127.0.0.1", 0), in_process_debug_adapter=True)
        finally:
            if before is None:
                del os.environ["PYDEVD_DISABLE_FILE_VALIDATION"]
        return str(host), int(port)

    def _initialize(self, arguments: Message) -> Message:
        if self._connection is None:
            if not installed:
                raise DebugFailure("there is no debugger: debugpy is not in the kernel's environment")
            hide_thread(threading.current_thread())
            address = self._kernel.call_in_main(self._listen, _START_S)
            self._connection = Connection(address, self._on_event)
            _cellgate.before_interrupt = leave_stop
        self._started = True
        compiler: Any = self._kernel.shell.compile
        compiler.cells_are_files = True
        self._keep_empty_lines(True)
        if not self._capabilities:
            self._capabilities = self._forward("initialize", {"adapterID": "", **arguments})
        return self._capabilities

    def _attach(self, arguments: Message) -> Message:
        if self._attached:  # the front-end has disconnected, which was not reported to debugpy
            self._on_event({"type": "event", "event": "initialized"})
            return {}
        ours = os.path.dirname(__file__)
        rules = [{"path": f"{ours}/**", "include": False}]
        body = self._forward("attach", {**arguments, "rules": rules})
        self._attached = True
        return body

    def _configuration_done(self, arguments: Message) -> Message:
        return self._forward("configurationDone", arguments)

    def _disconnect(self, arguments: Message) -> Message:
        """The front-end disconnects. debugpy cannot start twice, so it keeps running."""
        if self._started:
            for path in list(self._breakpoints):
                self._forward("setBreakpoints", {"source": {"path": path}, "breakpoints": []})
            self._forward("setExceptionBreakpoints", {"filters": []})
            for thread in list(self._stopped):
                self._forward("continue", {"threadId": thread})
        self._breakpoints.clear()
        self._started = False
        self._keep_empty_lines(False)
        return {}

    def _keep_empty_lines(self, keep: bool) -> None:
        """Keep empty lines before the code, which IPython drops, so that line numbers are right."""
        transforms = self._kernel.shell.input_transformer_manager.cleanup_transforms
        drop = importlib.import_module("IPython.core.inputtransformer2").leading_empty_lines
        if keep and drop in transforms:
            transforms.remove(drop)
        elif not keep and drop not in transforms:
            transforms.insert(0, drop)

    def _on_event(self, event: Message) -> None:
        body = event.get("body") or {}
        thread = body.get("threadId")
        if event.get("event") == "stopped" and isinstance(thread, int):
            self._stopped.add(thread)
        elif event.get("event") == "continued":
            self._stopped.clear() if body.get("allThreadsContinued") else self._stopped.discard(thread)
        elif event.get("event") == "thread" and body.get("reason") == "exited":
            self._stopped.discard(thread)
        event.pop("pydevd_cmd_id", None)
        event["seq"] = next(self._numbers)
        _cellgate.publish("debug_event", event)

    def cell_has_ended(self) -> None:
        """A cell of the main thread has ended. Report if an interrupt ended a stopped one."""
        for thread in list(self._stopped):
            self._on_event({"type": "event", "event": "continued", "body": {"threadId": thread}})
        # Before Python 3.12 an exception from a trace function ends tracing in its thread.
        if self._started and sys.version_info < (3, 12) and sys.gettrace() is None:
            importlib.import_module("debugpy").trace_this_thread(True)

    # ---------------------------------------------------------------- what Jupyter adds

    def _info(self, arguments: Message) -> Message:
        return {
            "isStarted": self._started,
            "hashMethod": "Murmur2",
            "hashSeed": HASH_SEED,
            "tmpFilePrefix": cell_folder() + os.sep,
            "tmpFileSuffix": ".py",
            "breakpoints": [{"source": k, "breakpoints": v} for k, v in self._breakpoints.items()],
            "stoppedThreads": sorted(self._stopped),
            "richRendering": True,
            "exceptionPaths": ["Python Exceptions"],
            "copyToGlobals": True,
        }

    def _dump_cell(self, arguments: Message) -> Message:
        code = field(arguments, "code", str)
        path = cell_file(code)
        os.makedirs(cell_folder(), exist_ok=True)
        with open(path, "w", encoding="utf-8", errors="replace") as f:
            f.write(code)
        return {"sourcePath": path}

    def _source(self, arguments: Message) -> Message:
        path = field(field(arguments, "source", dict), "path", str)
        with open(path, encoding="utf-8", errors="replace") as f:
            return {"content": f.read(_MAX_MESSAGE)}

    def _set_breakpoints(self, arguments: Message) -> Message:
        path = field(field(arguments, "source", dict), "path", str)
        wanted = field(arguments, "breakpoints", list, [])
        body = self._forward("setBreakpoints", arguments)
        lines = [b.get("line") for b in body.get("breakpoints", [])]
        placed = [{**w, "line": line or w.get("line")} for w, line in itertools.zip_longest(wanted, lines) if w]
        if placed:
            self._breakpoints[path] = placed
        else:
            self._breakpoints.pop(path, None)
        return body

    def _stack_trace(self, arguments: Message) -> Message:
        """The stack trace without the frames of IPython and cellgate below the cell."""
        body = self._forward("stackTrace", arguments)
        frames = body.get("stackFrames", [])
        folder = cell_folder() + os.sep
        of_cells = [i for i, f in enumerate(frames) if str((f.get("source") or {}).get("path", "")).startswith(folder)]
        if of_cells:
            frames = frames[: of_cells[-1] + 1]
            body = {**body, "stackFrames": frames, "totalFrames": len(frames)}
        return body

    def _variables(self, arguments: Message) -> Message:
        reference = field(arguments, "variablesReference", int)
        if not self._stopped:
            return {"variables": self._explorer.children(reference)}
        body = self._forward("variables", arguments)
        found = [v for v in body.get("variables", []) if is_shown(str(v.get("name", "")))]
        return {**body, "variables": found}

    def _inspect_variables(self, arguments: Message) -> Message:
        return {"variables": self._explorer.look(self._kernel.shell.user_ns)}

    def _rich_inspect(self, arguments: Message) -> Message:
        """A variable as a mime bundle."""
        name = field(arguments, "variableName", str)
        if not name.isidentifier():
            return {"data": {}, "metadata": {}}
        frame = field(arguments, "frameId", int, None)
        if self._stopped and frame is not None:
            code = f"get_ipython().display_formatter.format({name})"
            found = self._forward("evaluate", {"expression": code, "frameId": frame, "context": "clipboard"})
            data, metadata = ast.literal_eval(found.get("result", "({}, {})"))
            return {"data": data, "metadata": metadata}
        value = self._kernel.shell.user_expressions({name: name})[name]
        if value["status"] != "ok":
            raise DebugFailure(f"{value['ename']}: {value['evalue']}")
        return {"data": value["data"], "metadata": value["metadata"]}

    def _copy_to_globals(self, arguments: Message) -> Message:
        target = field(arguments, "dstVariableName", str)
        change = {
            "expression": f"globals()[{target!r}]",
            "value": field(arguments, "srcVariableName", str),
            "frameId": field(arguments, "srcFrameId", int),
        }
        return self._forward("setExpression", change)

    def _modules(self, arguments: Message) -> Message:
        found: list[Message] = []
        for name, module in sorted(sys.modules.items()):
            path = getattr(module, "__file__", None)
            if isinstance(path, str) and path.endswith(".py"):
                found.append({"id": len(found), "name": name, "path": path})
        start = field(arguments, "startModule", int, 0)
        count = field(arguments, "moduleCount", int, 0) or len(found)
        return {"modules": found[start : start + count], "totalModules": len(found)}
