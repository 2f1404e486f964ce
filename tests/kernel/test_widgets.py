"""ipywidgets: messages from and to a front-end."""

from typing import Any

import pytest
from kernel.harness import Kernel, Message


@pytest.fixture
def widgets(packages_kernel: Kernel) -> Kernel:
    assert packages_kernel.run("import ipywidgets as w", timeout=60).status == "ok"
    return packages_kernel


def states(messages: list[Message]) -> list[dict[str, Any]]:
    """Return the widgets' states in comm messages."""
    return [m.json["content"]["data"].get("state", {}) for m in messages if m.type == "COMM"]


def update(kernel: Kernel, ident: str, **state: Any) -> list[Message]:
    data = {"method": "update", "state": state, "buffer_paths": []}
    request = kernel.request("comm_msg", {"comm_id": ident, "data": data, "header": {"msg_id": "front-1"}})
    reply, messages = kernel.reply(request)
    assert reply == {"status": "ok"}
    return messages


def test_a_slider(widgets: Kernel) -> None:
    r = widgets.run("s = w.IntSlider(value=3)\ns.observe(lambda c: print('now', c['new']), 'value')\ns")
    opened = [m.json["content"] for m in r.of("COMM") if m.json["msg_type"] == "comm_open"]
    assert {"jupyter.widget"} == {c["target_name"] for c in opened}
    (slider,) = [c for c in opened if c["data"]["state"]["_model_name"] == "IntSliderModel"]
    view = r.of("EXECUTE_RESULT")[0].json["data"]["application/vnd.jupyter.widget-view+json"]
    assert view["model_id"] == slider["comm_id"]
    messages = update(widgets, slider["comm_id"], value=42)
    assert b"now 42\n" in [m.raw for m in messages]
    assert widgets.run("s.value").result == "42"
    r = widgets.run("s.value = 7")
    assert {"value": 7} in states(r.messages)


def test_buffers(widgets: Kernel) -> None:
    r = widgets.run("i = w.Image(value=b'\\x89PNG' + bytes(range(256)))")
    assert [b"\x89PNG" + bytes(range(256))] in [m.buffers for m in r.of("COMM")]


def test_output_captures_by_the_message_of_the_front_end(widgets: Kernel) -> None:
    widgets.run("out = w.Output()\nb = w.Button()\n@out.capture()\ndef click(_): print('clicked')\nb.on_click(click)")
    ident = widgets.run("b.model_id").result.strip("'")  # type: ignore[union-attr]
    r = widgets.run("with out:\n    print('inside')", extra={"header": {"msg_id": "front-7"}})
    assert {"msg_id": "front-7"} in states(r.messages) and {"msg_id": ""} in states(r.messages)
    assert r.out == "inside\n"
    data = {"method": "custom", "content": {"event": "click"}}
    request = widgets.request("comm_msg", {"comm_id": ident, "data": data, "header": {"msg_id": "front-8"}})
    _, messages = widgets.reply(request)
    assert {"msg_id": "front-8"} in states(messages)
    assert b"clicked\n" in [m.raw for m in messages]


def test_a_front_end_that_joins_asks_for_all_states(widgets: Kernel) -> None:
    widgets.run("s = w.IntSlider(value=3)")
    content = {"comm_id": "c", "target_name": "jupyter.widget.control", "data": {}, "metadata": {"version": "1.0.0"}}
    assert widgets.ask("comm_open", content) == {"status": "ok"}
    data = {"method": "request_states"}
    _, messages = widgets.reply(widgets.request("comm_msg", {"comm_id": "c", "data": data}))
    (answer,) = [m for m in messages if m.type == "COMM"]
    assert "IntSliderModel" in [s["model_name"] for s in answer.json["content"]["data"]["states"].values()]


def test_interact(widgets: Kernel) -> None:
    r = widgets.run("@w.interact(x=(0, 10))\ndef f(x=1):\n    print('x is', x)")
    assert r.status == "ok", r
    assert "x is 1" in r.out
