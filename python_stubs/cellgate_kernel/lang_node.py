"""Sessions whose language is JavaScript: one node runs all cells (lang_node.mjs)."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import functools
import json
import os
import re
import signal
from typing import TYPE_CHECKING, Any

import _cellgate
from cellgate_kernel import jsontext
from cellgate_kernel.languages import FOLDER, Content, Language, cell_error, find_tool, tools_package
from cellgate_kernel.values import Json, ValueProblem, text_of

if TYPE_CHECKING:
    from cellgate_kernel.kernel import Kernel

# For import from the current folder, and for the parser that finds import in cells. Both from Node 18 on.
_OPTIONS = ("--experimental-import-meta-resolve", "--expose-internals", "--no-warnings")

_NAME = re.compile(r"[A-Za-z_$][\w$]*", re.ASCII)
_KEYWORDS = re.compile(
    "arguments|await|break|case|catch|class|const|continue|debugger|default|delete|do|else|enum|eval|export|"
    "extends|false|finally|for|function|if|implements|import|in|instanceof|interface|let|new|null|package|"
    "private|protected|public|return|static|super|switch|this|throw|true|try|typeof|var|void|while|with|yield"
)
# Integers beyond are not all numbers of JavaScript.
_MAX_INT = 2**53
_LARGE = 16  # digits
# For node to read that the cell is interrupted.
_SIGNAL_AFTER_S = 0.1
_PLAIN = frozenset({str, float, bool, type(None)})


class Node(Language):
    """A node that stays."""

    name = "node"
    title = "node"
    state = "its variables and modules"

    def __init__(self, kernel: Kernel, path: str) -> None:
        super().__init__(kernel, path)
        self._requests: collections.deque[Any] = collections.deque(maxlen=4)  # the last of this node

    def before_start(self) -> None:
        self._requests.clear()

    def command(self, fd: int) -> list[str]:
        # Folders with node_modules of install_package, besides NODE_PATH.
        folders = self.kernel.config.get("python_path", [])
        return ["node", *_OPTIONS, os.path.join(FOLDER, "lang_node.mjs"), str(fd), *folders]

    def request(self, text: str, number: int, metadata: Content) -> bytes:
        place = metadata.get("cellgate")
        name, line = f"In[{self.kernel.shell.execution_count}]", 1
        if isinstance(place, dict) and isinstance(place.get("file"), str) and isinstance(place.get("line"), int):
            name, line = place["file"], max(1, min(place["line"], 1_000_000))
        code = "\n" * (line - 1) + text
        return _line({"cell": number, "code": code, "name": "".join(name.split()), "typescript": name.endswith(".ts")})

    def check(self, reply: Content) -> None:
        if isinstance(value := reply.get("value"), dict):
            count = self.kernel.shell.execution_count
            if not self.silent:
                content = {"data": value, "metadata": {}, "execution_count": count}
                _cellgate.publish("execute_result", content)
        if reply.get("interrupted"):
            raise KeyboardInterrupt
        if status := reply.get("exit"):
            raise cell_error("ExitStatus", str(status), [f"exit status {status}"])
        if isinstance(error := reply.get("error"), dict):
            name = str(error.get("name"))
            lines = [str(line) for line in error.get("lines") or []]
            refused = self.refused and bool(error.get("refused"))
            raise cell_error(name if name.isidentifier() else "Error", str(error.get("message")), lines, refused)

    def interrupt(self, running: asyncio.Future[Content]) -> None:
        """A message ends a wait; the signal, which could also come too late, is for code that does not read it."""
        if (node := self._process) is None:
            return
        self.send(_line({"interrupt": self.number}))
        late = self.loop.call_later(_SIGNAL_AFTER_S, node.send_signal, signal.SIGINT)
        running.add_done_callback(lambda _: late.cancel())
        for name in os.listdir("/proc"):  # what it has started
            with contextlib.suppress(OSError, ValueError):
                if int(name) != node.pid and os.getpgid(int(name)) == node.pid:
                    os.kill(int(name), signal.SIGINT)

    # ---------------------------------------------------------------- variables

    def why_not(self, name: str) -> str:
        if _KEYWORDS.fullmatch(name):
            return "is a keyword of JavaScript"
        return "" if _NAME.fullmatch(name) else "is not the name of a variable"

    async def complete(self, code: str) -> tuple[str, list[str]]:
        reply = await self.swap(lambda number: _line({"complete": number, "code": code}))
        word, matches = reply.get("word"), reply.get("matches")
        return str(word or ""), [str(match) for match in matches] if isinstance(matches, list) else []

    async def put(self, made: Content, lossy: bool) -> None:
        if not lossy:
            for name, value in made.items():
                if not isinstance(value, Json):
                    _check_numbers(name, value)
                elif value.digits >= _LARGE:
                    _check_numbers(name, json.loads(value.text))
        texts = [text_of(value) for value in made.values()]
        sizes = [len(text) for text in texts]
        await self.swap(lambda number: b"".join([_line({"put": number, "names": list(made), "sizes": sizes}), *texts]))

    async def take(self, names: list[str], lossy: bool) -> Content:
        reply = await self.swap(lambda number: _line({"take": number, "names": names, "lossy": lossy}))
        found = dict(zip(reply["values"], reply["texts"], strict=True))
        if reply["large"]:
            return {name: _with_floats(json.loads(text)) for name, text in found.items()}
        return {name: Json(text) for name, text in found.items()}

    # ---------------------------------------------------------------- requests of the program

    def on_message(self, message: Content) -> None:
        if isinstance(data := message.get("display"), dict):
            _cellgate.publish("display_data", {"data": data, "metadata": {}, "transient": {}})
        elif isinstance(message.get("request"), list) and message.get("id") not in self._requests:
            # An interrupt of its send() makes node send a request again.
            self._requests.append(message.get("id"))
            self.spawn(self._answer(*message["request"]), functools.partial(self._finish, message.get("id")))

    def _finish(self, ident: Any, task: asyncio.Task[Any]) -> None:
        """Settle the promise, however the request has ended."""
        from cellgate_tools import ToolRunnerError

        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is None:
            answer = {"value": task.result()}
        elif isinstance(error, asyncio.CancelledError):
            answer = {"error": {"message": "the call was cancelled by an interrupt", "kind": "cancelled"}}
        elif isinstance(error, ToolRunnerError):
            kind = "rejected" if error.kind == "approval_timeout" else error.kind
            answer = {"error": {"message": str(error), "kind": kind}}
        else:
            answer = {"error": {"message": str(error.args[0] if error.args else error)}}
        self.send(_line({"id": ident, **answer}))

    async def _answer(self, what: str, *arguments: Any) -> Any:
        if what == "call":
            server, tool, params = arguments
            return await self.call_tool(server, tool, params)
        package = tools_package()
        if what == "tools":
            return {name: find_tool(arguments[0], name).__doc__ or "" for name in _names(package, arguments[0])}
        if what == "servers":
            return list(package.servers())
        if what == "search":
            found = package.search(*arguments)
            return [{"server": m.server, "tool": m.tool, "module": m.module, "text": m.text} for m in found]
        if what == "help":
            server, tool = arguments
            return (find_tool(server, tool).__doc__ or "") if tool else repr(package.tools(server, describe=True))
        if what == "types":
            from cellgate_tools.declarations import declarations

            return declarations(package.__path__, lambda *names: find_tool(*names).__doc__ or "", *arguments)
        raise LookupError(f"there is no request {what!r}")


def _line(message: Content) -> bytes:
    return jsontext.dumps(message).encode() + b"\n"


def _check_numbers(name: str, value: Any) -> None:
    """ValueProblem if there is an integer in it that JavaScript does not have."""
    waiting = [(value, "")]
    while waiting:
        value, path = waiting.pop()
        if type(value) is int and not -_MAX_INT <= value <= _MAX_INT:
            text = f"{name}{path} is an integer beyond 2**53, which JavaScript's numbers do not keep"
            raise ValueProblem("NotJSON", text, name, "int", path)
        if type(value) is list and not (kinds := set(map(type, value))) <= _PLAIN:
            if kinds == {int} and min(value) >= -_MAX_INT and max(value) <= _MAX_INT:
                continue
            waiting.extend((item, f"{path}[{i}]") for i, item in enumerate(value) if type(item) not in _PLAIN)
        elif type(value) is dict:
            waiting.extend((item, f"{path}[{key!r}]") for key, item in value.items() if type(item) not in _PLAIN)


def _with_floats(value: Any) -> Any:
    """Large numbers of node, which writes them without exponent, are no integers of Python."""
    if type(value) is int:
        return value if -_MAX_INT <= value <= _MAX_INT else float(value)
    if type(value) is list:
        kinds = set(map(type, value))
        if kinds <= _PLAIN or (kinds == {int} and min(value) >= -_MAX_INT and max(value) <= _MAX_INT):
            return value
        return [_with_floats(item) for item in value]
    if type(value) is dict:
        return {key: _with_floats(item) for key, item in value.items()}
    return value


def _names(package: Any, server: str) -> list[str]:
    return [str(name) for name in package.tools(server)]


def make(kernel: Kernel, path: str) -> Language:
    """The language of a kernel."""
    return Node(kernel, path)
