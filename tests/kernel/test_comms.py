"""Comms, and the attributes of ipykernel that libraries use."""

from typing import Any

import pytest
from kernel.harness import Kernel, Message


def comm_messages(messages: list[Message]) -> list[tuple[str, dict[str, Any]]]:
    return [(m.json["msg_type"], m.json["content"]) for m in messages if m.type == "COMM"]


def test_a_comm_opened_here(kernel: Kernel) -> None:
    r = kernel.run(
        "import comm\n"
        "c = comm.create_comm(target_name='t', data={'a': 1}, metadata={'version': '2.1.0'}, buffers=[b'one', b''])\n"
        "c.send({'b': 2}, buffers=[memoryview(b'abc')[::-1], bytearray(5)])\n"
        "c.close()\n"
        "c.comm_id"
    )
    opened, sent, closed = r.of("COMM")
    ident = r.result.strip("'")  # type: ignore[union-attr]
    assert opened.json["metadata"] == {"version": "2.1.0"}
    assert opened.json["content"] == {"comm_id": ident, "target_name": "t", "target_module": None, "data": {"a": 1}}
    assert opened.buffers == [b"one", b""]
    assert sent.json["content"] == {"comm_id": ident, "data": {"b": 2}}
    assert sent.buffers == [b"cba", bytes(5)]
    assert closed.json["msg_type"] == "comm_close"
    assert opened.id == sent.id == closed.id == 1


def test_a_comm_opened_there(kernel: Kernel) -> None:
    kernel.run(
        "import comm\n"
        "def target(c, opened):\n"
        "    c.on_msg(lambda m: c.send({'got': m['content']['data'], 'meta': m['metadata']}, buffers=m['buffers']))\n"
        "    c.on_close(lambda m: print('closed', m['content']['data']))\n"
        "    c.send({'hello': opened['content']['data'], 'header': opened['header']['msg_id']})\n"
        "comm.get_comm_manager().register_target('echo', target)"
    )
    content = {"comm_id": "c1", "target_name": "echo", "data": 1, "metadata": {"m": 1}, "header": {"msg_id": "theirs"}}
    ident = kernel.request("comm_open", content)
    reply, messages = kernel.reply(ident)
    assert reply == {"status": "ok"}
    assert comm_messages(messages) == [
        ("comm_msg", {"comm_id": "c1", "data": {"hello": 1, "header": "theirs"}}),
    ]
    assert messages[0].id == ident
    assert kernel.ask("comm_info_request", {})["comms"] == {"c1": {"target_name": "echo"}}
    assert kernel.ask("comm_info_request", {"target_name": "other"})["comms"] == {}
    content = {"comm_id": "c1", "data": {"x": [1]}}
    _, (echo,) = kernel.reply(kernel.request("comm_msg", content, b"\x00\xff", b""))
    assert echo.json["content"]["data"] == {"got": {"x": [1]}, "meta": {}}
    assert echo.buffers == [b"\x00\xff", b""]
    _, (text,) = kernel.reply(kernel.request("comm_close", {"comm_id": "c1", "data": {"bye": 1}}))
    assert text.raw == b"closed {'bye': 1}\n"
    assert kernel.ask("comm_info_request", {})["comms"] == {}


def test_unknown_target_is_closed(kernel: Kernel) -> None:
    ident = kernel.request("comm_open", {"comm_id": "c9", "target_name": "nobody", "data": {}})
    reply, messages = kernel.reply(ident)
    assert reply == {"status": "ok"}
    assert ("comm_close", {"comm_id": "c9", "data": {}}) in comm_messages(messages)
    assert kernel.ask("comm_info_request", {})["comms"] == {}


def test_message_to_an_unknown_comm(kernel: Kernel) -> None:
    assert kernel.ask("comm_msg", {"comm_id": "nowhere", "data": {}}) == {"status": "ok"}
    assert kernel.ask("comm_close", {"comm_id": "nowhere"}) == {"status": "ok"}


def test_events_around_handlers(kernel: Kernel) -> None:
    kernel.run(
        "import comm\n"
        "ip = get_ipython()\n"
        "c = comm.create_comm(target_name='t')\n"
        "c.on_msg(lambda m: print('handler'))\n"
        "ip.events.register('pre_execute', lambda: print('before'))\n"
        "ip.events.register('post_execute', lambda: print('after'))"
    )
    ident = kernel.run("c.comm_id").result.strip("'")  # type: ignore[union-attr]
    _, messages = kernel.reply(kernel.request("comm_msg", {"comm_id": ident, "data": {}}))
    assert b"".join(m.raw for m in messages) == b"before\nhandler\nafter\n"


@pytest.mark.parametrize(
    "raises", ["ValueError('no')", "KeyboardInterrupt", "SystemExit(3)", "BaseException('x')", "RecursionError"]
)
def test_a_handler_that_raises(kernel: Kernel, raises: str) -> None:
    kernel.run(f"import comm\nc = comm.create_comm(target_name='t')\ndef f(m): raise {raises}\nc.on_msg(f)")
    ident = kernel.run("c.comm_id").result.strip("'")  # type: ignore[union-attr]
    assert kernel.ask("comm_msg", {"comm_id": ident, "data": {}})["status"] in ("ok", "error")
    assert kernel.run("1").result == "1"


def test_a_handler_can_be_interrupted(kernel: Kernel) -> None:
    kernel.run(
        "import comm\nc = comm.create_comm(target_name='t')\n"
        "def f(m):\n    print('in', flush=True)\n    while True: pass\nc.on_msg(f)"
    )
    ident = kernel.run("c.comm_id").result.strip("'")  # type: ignore[union-attr]
    request = kernel.request("comm_msg", {"comm_id": ident, "data": {}})
    kernel.wait_for_text("in")
    kernel.interrupt(request)
    kernel.reply(request)
    assert kernel.run("1").result == "1"


def test_a_handler_uses_the_loop(kernel: Kernel) -> None:
    kernel.run(
        "import asyncio, comm\nc = comm.create_comm(target_name='t')\n"
        "async def later(): print('later')\n"
        "def f(m):\n    global task\n    task = asyncio.get_running_loop().create_task(later())\nc.on_msg(f)"
    )
    ident = kernel.run("c.comm_id").result.strip("'")  # type: ignore[union-attr]
    kernel.ask("comm_msg", {"comm_id": ident, "data": {}})
    assert kernel.run("await task; 5").result == "5"


def test_too_many_buffers(kernel: Kernel) -> None:
    kernel.run("import comm\nc = comm.create_comm(target_name='t')")
    assert len(kernel.run("c.send({}, buffers=[b'x'] * 64)").of("COMM")[0].buffers) == 64
    r = kernel.run("c.send({}, buffers=[b'x'] * 65)")
    assert r.reply["ename"] == "ValueError" and "64" in r.reply["evalue"]


def test_too_large_a_message(kernel: Kernel) -> None:
    kernel.run("import comm\nc = comm.create_comm(target_name='t')")
    r = kernel.run("c.send({}, buffers=[bytes(40 << 20), bytes(40 << 20)])", timeout=30)
    assert "over its limit" in r.reply["evalue"]
    assert len(kernel.run("c.send({}, buffers=[bytes(40 << 20)])", timeout=30).of("COMM")[0].buffers[0]) == 40 << 20


@pytest.mark.parametrize("bad", ["[1]", "['text']", "5", "[None]"])
def test_bad_buffers(kernel: Kernel, bad: str) -> None:
    kernel.run("import comm\nc = comm.create_comm(target_name='t')")
    assert kernel.run(f"c.send({{}}, buffers={bad})").reply["ename"] == "TypeError"
    assert kernel.run("1").result == "1"


def test_many_messages_with_buffers_in_order(kernel: Kernel) -> None:
    r = kernel.run(
        "import comm\nc = comm.create_comm(target_name='t')\n"
        "for i in range(2000):\n    c.send({'i': i}, buffers=[i.to_bytes(4, 'little') * 1000])",
        timeout=30,
    )
    sent = r.of("COMM")[1:]
    assert [m.json["content"]["data"]["i"] for m in sent] == list(range(2000))
    assert all(m.buffers == [i.to_bytes(4, "little") * 1000] for i, m in enumerate(sent))


def test_the_package_replaced(kernel: Kernel) -> None:
    kernel.run("import sys\nsys.modules['comm'] = None\nsys.modules['comm.base_comm'] = None")
    assert kernel.ask("comm_info_request", {})["status"] == "ok"
    ident = kernel.request("comm_open", {"comm_id": "c", "target_name": "nobody", "data": {}})
    assert kernel.reply(ident)[0]["status"] in ("ok", "error")
    assert kernel.run("1").result == "1"


def test_a_comm_in_a_forked_process_says_nothing(kernel: Kernel) -> None:
    r = kernel.run(
        "import comm, os\nc = comm.create_comm(target_name='t')\n"
        "pid = os.fork()\n"
        "if not pid:\n    c.send({'from': 'child'})\n    print('sent', flush=True)\n    os._exit(0)\n"
        "os.waitpid(pid, 0)[1]"
    )
    assert (r.result, r.out) == ("0", "sent\n")
    assert [t for t, _ in comm_messages(r.messages)] == ["comm_open"]


# ------------------------------------------------------------------ get_ipython().kernel


def test_parent(kernel: Kernel) -> None:
    r = kernel.run(
        "p = get_ipython().kernel.get_parent()\np['header']['msg_id'], p['msg_type'], p['content']['silent'], p['metadata']",
        extra={"header": {"msg_id": "abc"}, "metadata": {"k": 1}},
    )
    assert r.result == "('abc', 'execute_request', False, {'k': 1})"
    first = kernel.run("get_ipython().kernel._parent_header['header']['msg_id']").result
    second = kernel.run("get_ipython().parent_header['header']['msg_id']").result
    assert first and second and first != second


def test_session_sends(kernel: Kernel) -> None:
    r = kernel.run(
        "k = get_ipython().kernel\n"
        "k.session.send(k.iopub_socket, 'display_data', {'data': {'text/plain': 'd'}, 'metadata': {}})\n"
        "k.send_response(k.iopub_socket, 'stream', {'name': 'stderr', 'text': 'e'})\n"
        "k.session.send(None, 'comm_msg', {'comm_id': 'x', 'data': {}}, buffers=[b'1'])\n"
        "k.session.send(None, k.session.msg('clear_output', {'wait': False}));"
    )
    assert [m.type for m in r.messages] == ["DISPLAY_DATA", "STREAM", "COMM", "CLEAR_OUTPUT"]
    assert r.err == "e" and r.of("COMM")[0].buffers == [b"1"]
    assert kernel.run("k.session.send(None, 'execute_reply', {})").reply["ename"] == "ValueError"


def test_kernel_object(kernel: Kernel) -> None:
    assert kernel.run("k = get_ipython().kernel\nk.shell is get_ipython(), k.execution_count").result == "(True, 2)"
    assert kernel.run("import comm\nk.comm_manager is comm.get_comm_manager()").result == "True"
    assert kernel.run("await k.do_one_iteration()").status == "ok"


def test_display_hooks(kernel: Kernel) -> None:
    kernel.run(
        "pub = get_ipython().display_pub\nseen = []\n"
        "def take(msg):\n    seen.append(msg['content']['data']['text/plain'])\n"
        "def change(msg):\n    msg['content']['data']['text/plain'] += '!'\n    return msg"
    )
    r = kernel.run(
        "pub.register_hook(change)\ndisplay(1)\npub.register_hook(take)\ndisplay(2)\npub.unregister_hook(take)"
    )
    assert [m.json["data"]["text/plain"] for m in r.of("DISPLAY_DATA")] == ["1!"]
    assert r.result == "True"
    assert (
        kernel.run("pub.unregister_hook(change), pub.unregister_hook(change), seen").result == "(True, False, ['2!'])"
    )
    r = kernel.run("get_ipython().displayhook.register_hook(lambda m: None)\n5")
    assert r.of("EXECUTE_RESULT") == []


def test_stand_ins_for_ipykernel(kernel: Kernel) -> None:
    r = kernel.run(
        "import ipykernel.kernelapp, ipykernel.zmqshell\n"
        "from ipykernel.comm import Comm\n"
        "from ipykernel.connect import get_connection_file\n"
        "from ipykernel.iostream import OutStream\n"
        "import sys\n"
        "(ipykernel.kernelapp.IPKernelApp.initialized(), isinstance(get_ipython(), ipykernel.zmqshell.ZMQInteractiveShell),\n"
        " isinstance(sys.stdout, OutStream), int(ipykernel.__version__.split('.')[0]) >= 6,\n"
        " ipykernel.kernelapp.IPKernelApp.instance().kernel is get_ipython().kernel)"
    )
    assert r.result == "(True, True, True, True, True)"
    assert kernel.run("Comm(target_name='t').comm_id").of("COMM")
    assert kernel.run("get_connection_file()").reply["ename"] == "RuntimeError"
    assert kernel.run("import ipykernel.nosuch").reply["ename"] == "ModuleNotFoundError"


def test_a_real_ipykernel_comes_first(kernel: Kernel) -> None:
    package = kernel.workspace / "ipykernel"
    package.mkdir()
    (package / "__init__.py").write_text("__version__ = 'real'\n")
    assert kernel.run("import ipykernel; ipykernel.__version__").result == "'real'"
    assert kernel.run("import ipykernel.comm").reply["ename"] == "ModuleNotFoundError"
