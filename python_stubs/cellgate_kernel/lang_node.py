"""Sessions whose language is JavaScript: one node runs all cells (lang_node.mjs)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import _cellgate
from cellgate_kernel import jsontext
from cellgate_kernel.languages import FOLDER, Content, Language, cell_error, find_tool, tools_package

if TYPE_CHECKING:
    from cellgate_kernel.kernel import Kernel

# For import from the current folder, and for the parser that finds import in cells. Both from Node 18 on.
_OPTIONS = ("--experimental-import-meta-resolve", "--expose-internals", "--no-warnings")


class Node(Language):
    """A node that stays."""

    name = "node"
    title = "node"
    state = "its variables and modules"

    def command(self, fd: int) -> list[str]:
        return ["node", *_OPTIONS, os.path.join(FOLDER, "lang_node.mjs"), str(fd)]

    def request(self, text: str, number: int, metadata: Content) -> bytes:
        place = metadata.get("cellgate")
        name, line = f"In[{self.kernel.shell.execution_count}]", 1
        if isinstance(place, dict) and isinstance(place.get("file"), str) and isinstance(place.get("line"), int):
            name, line = place["file"], max(1, min(place["line"], 1_000_000))
        code = "\n" * (line - 1) + text
        cell = {"cell": number, "code": code, "name": "".join(name.split()), "typescript": name.endswith(".ts")}
        return jsontext.dumps(cell).encode() + b"\n"

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

    # ---------------------------------------------------------------- requests of the program

    def on_message(self, message: Content) -> None:
        if isinstance(data := message.get("display"), dict):
            _cellgate.publish("display_data", {"data": data, "metadata": {}, "transient": {}})
        elif isinstance(message.get("request"), list):
            self.spawn(self._serve(message.get("id"), message["request"]))

    async def _serve(self, ident: Any, request: list[Any]) -> None:
        from cellgate_tools import ToolRunnerError

        try:
            answer = {"value": await self._answer(*request)}
        except ToolRunnerError as e:
            kind = "rejected" if e.kind == "approval_timeout" else e.kind
            answer = {"error": {"message": str(e), "kind": kind}}
        except (LookupError, TypeError, ImportError) as e:
            answer = {"error": {"message": str(e.args[0] if e.args else e)}}
        self.send(jsontext.dumps({"id": ident, **answer}).encode() + b"\n")

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
        raise LookupError(f"there is no request {what!r}")


def _names(package: Any, server: str) -> list[str]:
    return [str(name) for name in package.tools(server)]


def make(kernel: Kernel, path: str) -> Language:
    """The language of a kernel."""
    return Node(kernel, path)
