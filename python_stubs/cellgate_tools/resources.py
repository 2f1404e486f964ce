"""Resources and prompts of MCP servers: the functions of the package mcptools for them.

resources(SERVER), resource_templates(SERVER) and prompts(SERVER) list what a server has, without a question to the
host. read_resource(SERVER, URI) and get_prompt(SERVER, NAME, ...) wait for the host's approval, as calls of tools do.
Each takes the folders of the package first.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

from ._data import load_package
from ._errors import ParamsError, UnavailableError
from ._index import sentence
from ._kept import LargeText
from ._package import packages
from ._result import Block, Text, ToolResult, block_of
from ._schema import hint
from ._tool import answer_of, host, timeout_ms, whole

__all__ = [
    "Contents",
    "Listing",
    "Message",
    "Prompt",
    "PromptArgument",
    "PromptInfo",
    "ResourceInfo",
    "TemplateInfo",
    "aget_prompt",
    "aread_resource",
    "get_prompt",
    "prompts",
    "read_resource",
    "resource_templates",
    "resources",
]

T = TypeVar("T")


class Listing(list[T]):
    """What a server lists, shown as one line for each."""

    def __repr__(self) -> str:
        return "\n".join(map(repr, self)) or "none"


def _line(first: str, rest: Iterable[object], description: str | None) -> str:
    facts = ", ".join(str(part) for part in rest if part not in (None, ""))
    return first + (f" ({facts})" if facts else "") + (f": {sentence(description)[:160]}" if description else "")


class ResourceInfo(NamedTuple):
    """A resource as its server lists it; None where the server does not say."""

    uri: str
    name: str
    title: str | None
    description: str | None
    mime: str | None
    size: int | None
    """Bytes."""

    def __repr__(self) -> str:
        size = None if self.size is None else f"{self.size} bytes"
        return _line(self.uri, (self.title or self.name, self.mime, size), self.description)


class TemplateInfo(NamedTuple):
    """A template (RFC 6570) of URIs that read_resource() takes, such as notes://{name}."""

    template: str
    name: str
    title: str | None
    description: str | None
    mime: str | None

    def __repr__(self) -> str:
        return _line(self.template, (self.title or self.name, self.mime), self.description)


class PromptArgument(NamedTuple):
    name: str
    description: str | None
    required: bool

    def __repr__(self) -> str:
        return self.name if self.required else f"{self.name}?"


class PromptInfo(NamedTuple):
    """A prompt as its server lists it."""

    name: str
    title: str | None
    description: str | None
    arguments: list[PromptArgument]

    def __repr__(self) -> str:
        return _line(f"{self.name}({', '.join(map(repr, self.arguments))})", (self.title,), self.description)


class Message(NamedTuple):
    role: str
    content: Block

    def __str__(self) -> str:
        text = self.content.text
        return f"{self.role}: {repr(self.content) if text is None else text}"


class Prompt:
    """A prompt with its arguments filled in: .description (or None) and .messages; str() is a text of all messages."""

    def __init__(self, description: str | None, messages: list[Message]) -> None:
        self.description = description
        self.messages = messages

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.messages))

    __repr__ = __str__


class Contents(Text):
    """The contents of a resource: the text, and a line for each part that is no text.

    .content are the parts, .images, .audio and .resources some of them. Of a resource with one part,
    .data are its bytes (None: it is text), .mime and .uri say what it is, and save(PATH) writes it to a file.
    """

    @property
    def _part(self) -> Block:
        if len(self.content) != 1:
            raise ValueError(f"the resource has {len(self.content)} parts: use those of .content")
        return self.content[0]

    @property
    def data(self) -> bytes | None:
        return self._part.data

    @property
    def mime(self) -> str | None:
        return self._part.mime

    @property
    def uri(self) -> str | None:
        return self._part.uri

    def save(self, path: str | os.PathLike[str]) -> str | os.PathLike[str]:
        """Writes the data, or the text as UTF-8, to a file; returns path."""
        return self._part.save(path)


def _server(path: Iterable[str], server: str) -> str:
    """The registered name of a server, which may be given by its package, in any case."""
    folders = {name: os.path.join(folder, name) for folder in path for name in packages([folder])}
    if server in folders:
        return str(load_package(folders[server])["server"])
    names = {str(load_package(folder)["server"]): name for name, folder in folders.items()}
    for name, package in names.items():
        if server == name or server.lower() in (name.lower(), package):
            return name
    near = hint(server, [*names, *folders]) or f"; servers: {', '.join(names) or 'none'}"
    raise UnavailableError(f"there is no server {server!r}{near}", server=server, kind="unavailable")


class _Request(NamedTuple):
    server: str
    method: str
    params: bytes
    what: str

    def send(self) -> dict[str, Any]:
        kernel = host(self.server, "", self.what)
        return self.answer(kernel.mcp_request(self.server, self.method, self.params, timeout_ms()))

    async def asend(self) -> dict[str, Any]:
        from . import _async

        host(self.server, "", self.what)
        return self.answer(await _async.request(self.server, self.method, self.params, timeout_ms()))

    def answer(self, result: tuple[str, bytes, str]) -> dict[str, Any]:
        return answer_of(self.server, "", *result, self.what)

    def elements(self, answer: dict[str, Any], key: str) -> list[dict[str, Any]]:
        """The objects in a member of the answer."""
        found = answer.get(key)
        if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
            raise self.broken(f'has no list of objects "{key}"')
        return found

    def broken(self, how: str) -> UnavailableError:
        return UnavailableError(f"{self.what}: the server's answer {how}", server=self.server, kind="protocol")


def _request(path: Iterable[str], server: str, method: str, what: str, params: dict[str, Any]) -> _Request:
    name = _server(path, server)
    try:
        text = json.dumps(params, ensure_ascii=True, separators=(",", ":"))
    except (ValueError, RecursionError, TypeError) as e:
        raise ParamsError(what, [("", f"it cannot be written as JSON: {e}")]) from None
    return _Request(name, method, text.encode("ascii"), f"{what} of server {name}")


def _string(item: dict[str, Any], key: str) -> str | None:
    value = item.get(key)
    return value if isinstance(value, str) else None


def _list(path: Iterable[str], server: str, method: str, what: str, key: str, ident: str) -> list[dict[str, Any]]:
    """The elements of a list that have what they are used by."""
    request = _request(path, server, method, what, {})
    return [item for item in request.elements(request.send(), key) if _string(item, ident)]


def resources(path: Iterable[str], server: str) -> Listing[ResourceInfo]:
    found = Listing[ResourceInfo]()
    for item in _list(path, server, "resources/list", "the resources", "resources", "uri"):
        size = item.get("size")
        found.append(
            ResourceInfo(
                item["uri"],
                _string(item, "name") or "",
                _string(item, "title"),
                _string(item, "description"),
                _string(item, "mimeType"),
                size if isinstance(size, int) else None,
            )
        )
    return found


def resource_templates(path: Iterable[str], server: str) -> Listing[TemplateInfo]:
    method, key = "resources/templates/list", "resourceTemplates"
    return Listing(
        TemplateInfo(
            item["uriTemplate"],
            _string(item, "name") or "",
            _string(item, "title"),
            _string(item, "description"),
            _string(item, "mimeType"),
        )
        for item in _list(path, server, method, "the resource templates", key, "uriTemplate")
    )


def prompts(path: Iterable[str], server: str) -> Listing[PromptInfo]:
    found = Listing[PromptInfo]()
    for item in _list(path, server, "prompts/list", "the prompts", "prompts", "name"):
        listed = item.get("arguments")
        arguments = [
            PromptArgument(argument["name"], _string(argument, "description"), argument.get("required") is True)
            for argument in (listed if isinstance(listed, list) else ())
            if isinstance(argument, dict) and _string(argument, "name")
        ]
        found.append(PromptInfo(item["name"], _string(item, "title"), _string(item, "description"), arguments))
    return found


def _read(path: Iterable[str], server: str, uri: str) -> _Request:
    return _request(path, server, "resources/read", f"resource {uri}", {"uri": uri})


def _contents(request: _Request, answer: dict[str, Any]) -> Contents:
    blocks: list[dict[str, Any]] = []
    for part in request.elements(answer, "contents"):
        kind, _, _ = (_string(part, "mimeType") or "").partition("/")
        if "text" in part:
            blocks.append({**part, "type": "text"})
        elif "blob" in part and kind in ("image", "audio"):
            blocks.append({**part, "type": kind, "data": part["blob"]})
        else:
            blocks.append({"type": "resource", "resource": part})
        if not any(isinstance(part.get(key), (str, LargeText)) for key in ("text", "blob")):
            raise request.broken('has a part without "text" and "blob"')
    result = ToolResult({**answer, "content": blocks})
    return whole(lambda: Contents(result.summary(), result), result, request.server, "", request.what)


def read_resource(path: Iterable[str], server: str, uri: str) -> Contents:
    request = _read(path, server, uri)
    return _contents(request, request.send())


async def aread_resource(path: Iterable[str], server: str, uri: str) -> Contents:
    request = _read(path, server, uri)
    return _contents(request, await request.asend())


def _get(path: Iterable[str], server: str, name: str, arguments: dict[str, str]) -> _Request:
    wrong = [(f"/{key}", "not a string") for key, value in arguments.items() if not isinstance(value, str)]
    if wrong:
        raise ParamsError(f"prompt {name}", wrong)
    params = {"name": name, "arguments": arguments} if arguments else {"name": name}
    return _request(path, server, "prompts/get", f"prompt {name}", params)


def _prompt(request: _Request, answer: dict[str, Any]) -> Prompt:
    messages = []
    for item in request.elements(answer, "messages"):
        role, content = _string(item, "role"), item.get("content")
        if role is None or not isinstance(content, dict):
            raise request.broken('has a message without "role" or "content"')
        messages.append(Message(role, block_of(content)))
    return Prompt(_string(answer, "description"), messages)


def get_prompt(path: Iterable[str], server: str, name: str, arguments: dict[str, str]) -> Prompt:
    request = _get(path, server, name, arguments)
    return _prompt(request, request.send())


async def aget_prompt(path: Iterable[str], server: str, name: str, arguments: dict[str, str]) -> Prompt:
    request = _get(path, server, name, arguments)
    return _prompt(request, await request.asend())
