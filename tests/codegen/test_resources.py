"""mcptools' functions for resources and prompts: what they send, and what they make of any answer."""

from __future__ import annotations

import asyncio
import base64
import importlib
import json
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from codegen.support import Host, generate

TOOL = [{"name": "t", "inputSchema": {"type": "object"}}]
PNG = base64.b64encode(b"\x89PNG\r\n").decode()


@pytest.fixture
def mcptools(build_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """With the servers "My Files" and "other"."""
    for name in ("My Files", "other"):
        generate(build_dir, name, tmp_path / "mcptools", TOOL, root=True)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    yield importlib.import_module("mcptools")
    for name in [n for n in sys.modules if n.split(".")[0] == "mcptools"]:
        del sys.modules[name]


def _read(host: Host, mcptools: Any, *contents: Any) -> Any:
    host.answers({"contents": list(contents)})
    return mcptools.read_resource("other", "x://y")


def test_what_is_sent(host: Host, mcptools: Any) -> None:
    from cellgate_tools import options

    host.answers({"contents": [{"uri": "x://\u00e9", "text": "t"}]})
    with options(timeout=2):
        mcptools.read_resource("my_files", "x://\u00e9")
    assert host.sent == [("My Files", "resources/read", b'{"uri":"x://\\u00e9"}', 2000)]
    host.answers({"messages": []})
    mcptools.get_prompt("MY FILES", "greet", who="me", name="x")
    assert host.sent[-1][:2] == ("My Files", "prompts/get")
    assert host.last == {"name": "greet", "arguments": {"who": "me", "name": "x"}}
    mcptools.get_prompt("other", "greet")
    assert host.last == {"name": "greet"}
    for member, method, function in [
        ("resources", "resources/list", mcptools.resources),
        ("resourceTemplates", "resources/templates/list", mcptools.resource_templates),
        ("prompts", "prompts/list", mcptools.prompts),
    ]:
        host.answers({member: []})
        assert repr(function("other")) == "none"
        assert host.sent[-1] == ("other", method, b"{}", 0)


def test_lists(host: Host, mcptools: Any) -> None:
    full = {"uri": "a://b", "name": "b", "title": "B", "description": "Some.\nMore.", "mimeType": "text/x", "size": 5}
    host.answers({"resources": [full, {"uri": "c://d"}, {"name": "no uri"}, {"uri": 1}]})
    found = mcptools.resources("other")
    assert found[0] == ("a://b", "b", "B", "Some.\nMore.", "text/x", 5)
    assert found[1] == ("c://d", "", None, None, None, None)
    assert repr(found) == "a://b (B, text/x, 5 bytes): Some.\nc://d"
    host.answers({"resourceTemplates": [{"uriTemplate": "a://{x}", "name": "n"}]})
    assert repr(mcptools.resource_templates("other")) == "a://{x} (n)"
    arguments = [{"name": "who", "description": "d", "required": True}, {"name": "how"}, {"x": 1}, 5]
    host.answers({"prompts": [{"name": "greet", "arguments": arguments}, {"name": "bare", "arguments": 3}]})
    greet, bare = mcptools.prompts("other")
    assert repr(greet) == "greet(who, how?)" and greet.arguments[0] == ("who", "d", True)
    assert bare == ("bare", None, None, [])


def test_text_and_blobs(host: Host, mcptools: Any, tmp_path: Path) -> None:
    from cellgate_tools import Contents

    text = _read(host, mcptools, {"uri": "x://y", "mimeType": "text/plain", "text": "h\u00e9"})
    assert type(text) is Contents and text == "h\u00e9" and text.data is None
    assert (text.uri, text.mime) == ("x://y", "text/plain")
    assert Path(text.save(tmp_path / "t")).read_text() == "h\u00e9"
    image = _read(host, mcptools, {"uri": "x://y", "mimeType": "image/png", "blob": PNG})
    assert image.data == image.images[0].data == b"\x89PNG\r\n"
    assert image._repr_mimebundle_()["image/png"] == PNG
    assert Path(image.save(tmp_path / "i")).read_bytes() == b"\x89PNG\r\n"
    data = _read(host, mcptools, {"uri": "x://y", "blob": PNG})
    assert data.data == b"\x89PNG\r\n" and data.resources[0].uri == "x://y"
    again = pickle.loads(pickle.dumps(data))
    assert type(again) is Contents and again == data and again.data == data.data
    several = _read(host, mcptools, {"uri": "x://1", "text": "a"}, {"uri": "x://2", "text": "b"})
    assert several == "a\nb" and [part.uri for part in several.content] == ["x://1", "x://2"]
    with pytest.raises(ValueError, match="2 parts"):
        several.save(tmp_path / "no")
    assert _read(host, mcptools) == ""


def test_large_contents(host: Host, mcptools: Any, tmp_path: Path) -> None:
    """Text is read whole, data when it is used."""
    from cellgate_tools import Contents

    host.keeps('{"contents":[{"uri":"x://y","text":"@"}]}', "b" * 100_000)
    text = mcptools.read_resource("other", "x://y")
    assert type(text) is Contents and text == "b" * 100_000 and text.uri == "x://y" and text.data is None
    assert Path(text.save(tmp_path / "x")).read_text() == text
    host.read.clear()
    host.keeps('{"contents":[{"uri":"x://y","blob":"@"}]}', base64.b64encode(b"c" * 99_999).decode())
    blob = mcptools.read_resource("other", "x://y")
    assert sum(host.read) < 100 and blob.data == b"c" * 99_999


def test_prompt(host: Host, mcptools: Any) -> None:
    link = {"type": "resource_link", "uri": "x://y", "name": "y"}
    messages = [
        {"role": "user", "content": {"type": "text", "text": "hello"}},
        {"role": "assistant", "content": {"type": "image", "mimeType": "image/png", "data": PNG}},
        {"role": "user", "content": {"type": "resource", "resource": {"uri": "x://z", "text": "embedded"}}},
        {"role": "user", "content": link},
    ]
    host.answers({"description": "d", "messages": messages})
    prompt = mcptools.get_prompt("other", "greet")
    assert prompt.description == "d" and [m.role for m in prompt.messages] == ["user", "assistant", "user", "user"]
    assert prompt.messages[1].content.data == b"\x89PNG\r\n"
    image = "assistant: [image image/png 6 bytes]"
    assert str(prompt) == repr(prompt) == f"user: hello\n\n{image}\n\nuser: embedded\n\nuser: [resource_link x://y]"


@pytest.mark.parametrize(
    "answer",
    [{}, {"contents": 1}, {"contents": [1]}, {"contents": [{"uri": "x"}]}, {"contents": [{"uri": "x", "text": 1}]},
     {"contents": [], "resultType": "input_required"}, b"[]", b"{"],
)  # fmt: skip
def test_broken_contents(host: Host, mcptools: Any, answer: Any) -> None:
    from cellgate_tools import UnavailableError

    host.answers(answer)
    with pytest.raises(UnavailableError) as e:
        mcptools.read_resource("other", "x://y")
    assert e.value.kind == "protocol" and "resource x://y of server other" in str(e.value)


@pytest.mark.parametrize(
    "answer",
    [{}, {"messages": {}}, {"messages": [None]}, {"messages": [{"role": "user"}]}, {"messages": [{"content": {}}]},
     {"messages": [{"role": "user", "content": "text"}]}],
)  # fmt: skip
def test_broken_prompt(host: Host, mcptools: Any, answer: Any) -> None:
    from cellgate_tools import UnavailableError

    host.answers(answer)
    with pytest.raises(UnavailableError) as e:
        mcptools.get_prompt("other", "greet")
    assert e.value.kind == "protocol" and "prompt greet of server other" in str(e.value)


def test_errors(host: Host, mcptools: Any) -> None:
    from cellgate_tools import ParamsError, ProtocolError, RejectedError, UnavailableError

    host.answers(b"not this one", "rejected")
    host.kind = "rejected"
    with pytest.raises(RejectedError, match="resource x://y of server other was not run: not this one") as refused:
        mcptools.read_resource("other", "x://y")
    assert (refused.value.server, refused.value.tool, refused.value.kind) == ("other", "", "rejected")
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)
    host.answers({"code": -32002, "message": "Resource not found"}, "protocol_error")
    host.kind = "protocol"
    with pytest.raises(ProtocolError, match="Resource not found"):
        mcptools.read_resource("other", "x://y")
    n = len(host.sent)
    with pytest.raises(UnavailableError, match="no server 'othr'; did you mean 'other'") as e:
        mcptools.prompts("othr")
    assert e.value.kind == "unavailable"
    with pytest.raises(UnavailableError, match="servers: My Files, other"):
        mcptools.prompts("xyz")
    with pytest.raises(ParamsError, match="/who: not a string"):
        mcptools.get_prompt("other", "greet", who=1)
    assert len(host.sent) == n


def test_to_be_awaited(host: Host, mcptools: Any) -> None:
    async def both() -> tuple[Any, Any]:
        host.answers({"contents": [{"uri": "x", "text": "t"}]})
        contents = await mcptools.aread_resource("other", "x")
        host.answers({"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}]})
        return contents, await mcptools.aget_prompt("other", "greet", a="b")

    contents, prompt = asyncio.run(both())
    assert contents == "t" and str(prompt) == "user: hi"
    assert [s[1] for s in host.sent] == ["resources/read", "prompts/get"]
    assert json.loads(host.sent[1][2]) == {"name": "greet", "arguments": {"a": "b"}}


def test_names_of_the_functions_are_no_packages(build_dir: Path, tmp_path: Path) -> None:
    for name in ("resources", "prompts", "read_resource"):
        assert generate(build_dir, name, tmp_path, TOOL, root=True)["package"] != name
