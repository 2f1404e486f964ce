"""The control channel is served whatever a cell does; interrupts and ends."""

from __future__ import annotations

import signal
from typing import Any

import pytest

NATIVE = "print('in'); sum(range(10**11))"  # holds the interpreter, and reacts to no interrupt


@pytest.mark.parametrize("code", ["while True: pass", "import time; time.sleep(100)", NATIVE])
def test_kernel_info_while_a_cell_runs(client: Any, code: str) -> None:
    request = client.start(code)
    while client.receive("iopub")["msg_type"] != "execute_input":
        pass
    for _ in range(50):
        assert client.reply(client.send("control", "kernel_info_request"), "control")["content"]["status"] == "ok"
    client.nothing("shell", 0)  # the cell still runs
    assert client.ask("interrupt_request", channel="control").content == {"status": "ok"}
    assert client.finish(request).content["status"] == "error"


@pytest.mark.parametrize("channel", ["control", "shell"])
def test_interrupt(client: Any, channel: str) -> None:
    request = client.start("import time\ntime.sleep(100)")
    while client.receive("iopub")["msg_type"] != "execute_input":
        pass
    assert client.reply(client.send(channel, "interrupt_request"), channel)["content"] == {"status": "ok"}
    run = client.finish(request)
    assert (run.content["status"], run.content["ename"]) == ("error", "KeyboardInterrupt")
    assert "error" in run.types()


def test_interrupt_by_signal(kernel: Any, client: Any) -> None:
    request = client.start("import time\ntime.sleep(100)")
    while client.receive("iopub")["msg_type"] != "execute_input":
        pass
    kernel.process.send_signal(signal.SIGINT)
    assert client.finish(request).content["ename"] == "KeyboardInterrupt"


def test_interrupt_while_idle_hits_nothing(kernel: Any, client: Any) -> None:
    kernel.process.send_signal(signal.SIGINT)
    assert client.ask("interrupt_request", channel="control").content["status"] == "ok"
    assert client.run("6 * 7").result() == "42"


def test_interrupted_cell_aborts_the_queue(client: Any) -> None:
    request = client.start("import time\ntime.sleep(100)")
    while client.receive("iopub")["msg_type"] != "execute_input":
        pass
    behind = client.start("1")
    client.ask("interrupt_request", channel="control")
    assert client.reply(request)["content"]["status"] == "error"
    assert client.reply(behind)["content"]["status"] == "aborted"


STUBBORN = [
    NATIVE,
    "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}); print('in')\n"
    "threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGSTOP)).start(); time.sleep(600)",
    "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}); print('in'); time.sleep(600)",
    "signal.signal(signal.SIGINT, lambda *_: None); print('in'); time.sleep(600)",
    "print('in')\nwhile True:\n    try: time.sleep(600)\n    except BaseException: pass",
]


def test_what_ignores_the_interrupt_is_replaced(client: Any) -> None:
    for code in STUBBORN:
        client.run("import os, signal, threading, time; x = 1")
        request = client.start(code)
        while client.receive("iopub")["msg_type"] != "stream":
            pass
        client.send("control", "interrupt_request")
        run = client.finish(request)
        assert run.content["status"] == "error"
        assert "its kernel was replaced" in run.content["evalue"], code
        assert run.types()[-2:] == ["error", "idle"]
        run = client.run("'x' in globals()")
        assert (run.result(), run.content["execution_count"]) == ("False", 1)


def test_execute_on_control_while_a_cell_runs(client: Any) -> None:
    client.run("import threading, time; go = threading.Event()")
    request = client.start("go.wait(); 'first'")
    numbers = [client.send("control", "execute_request", {"code": c}) for c in ("x = 6 * 7; x", "1 / 0", "go.set()")]
    replies = [client.reply(n, "control") for n in numbers]
    assert [r["content"]["status"] for r in replies] == ["ok", "error", "ok"]
    assert "started" in replies[0]["metadata"]
    assert client.finish(request).result() == "'first'"
    assert client.run("x").result() == "42"
    hidden = client.reply(client.send("control", "list_subshell_request"), "control")["content"]
    assert hidden["subshell_id"] == []


def test_an_interrupt_reaches_a_cell_of_the_control_channel(client: Any) -> None:
    client.run("kept = 1; import time")
    number = client.send("control", "execute_request", {"code": "print('on'); time.sleep(100)"})
    while client.receive("iopub")["msg_type"] != "stream":
        pass
    waiting = client.send("control", "execute_request", {"code": "kept"})
    client.send("control", "interrupt_request")
    replies = {}
    while len(replies) < 2:
        m = client.receive("control")
        replies[m["parent_header"]["msg_id"]] = m["content"]
        replies.pop(None, None)
        if m["msg_type"] == "interrupt_reply":
            replies.pop(m["parent_header"]["msg_id"])
    assert replies[number]["ename"] == "KeyboardInterrupt"
    assert replies[waiting]["status"] == "ok"
    assert client.run("kept").result() == "1"


def test_control_execution_after_the_kernel_was_replaced(client: Any) -> None:
    assert (
        client.reply(client.send("control", "execute_request", {"code": "1"}), "control")["content"]["status"] == "ok"
    )
    assert client.run("import os; os._exit(1)").content["ename"] == "KernelDied"
    assert client.run("2").result() == "2"
    assert (
        client.reply(client.send("control", "execute_request", {"code": "1"}), "control")["content"]["status"] == "ok"
    )


def test_requests_of_the_control_channel_come_one_after_the_other(client: Any) -> None:
    numbers = [client.send("control", "usage_request") for _ in range(5)]
    states = []
    while states[-2:] != [(numbers[-1], "busy"), (numbers[-1], "idle")]:
        m = client.receive("iopub")
        if m["msg_type"] == "status" and m["parent_header"].get("msg_id") in numbers:
            states.append((m["parent_header"]["msg_id"], m["content"]["execution_state"]))
    assert states == [(n, s) for n in numbers for s in ("busy", "idle")]


def test_the_kernel_knows_the_last_control_request(client: Any) -> None:
    number = client.send("control", "kernel_info_request")
    client.reply(number, "control")
    client.run("k = get_ipython().kernel")
    assert client.run("k.get_parent('control')['header']['msg_id']").result() == repr(number)
    session = client.session.session
    expected = {channel: [session.encode()] for channel in ("shell", "control")}
    assert client.run("print(k._parent_ident)").text() == f"{expected}\n"


@pytest.mark.parametrize("channel", ["control", "shell"])
@pytest.mark.parametrize("restart", [False, True])
def test_shutdown(kernel: Any, client: Any, channel: str, restart: bool) -> None:
    other = kernel.client()
    request = client.send(channel, "shutdown_request", {"restart": restart})
    assert client.reply(request, channel)["content"] == {"status": "ok", "restart": restart}
    seen = [m["msg_type"] for m in other.published(request)]
    assert seen == ["status", "shutdown_reply", "status"]
    assert kernel.wait() == 0


@pytest.mark.parametrize("code", ["while True: pass", NATIVE, "import os; os.system('sleep 300 & sleep 300')"])
def test_shutdown_while_busy(kernel: Any, client: Any, code: str) -> None:
    running, waiting = client.start(code), client.start("1")
    while client.receive("iopub")["msg_type"] != "execute_input":
        pass
    request = client.send("control", "shutdown_request", {"restart": False})
    assert client.reply(request, "control")["content"]["status"] == "ok"
    for cell in (running, waiting):  # every request has its reply
        assert client.reply(cell)["content"]["ename"] == "KernelEnded"
    assert kernel.wait() == 0


def test_atexit_runs(kernel: Any, client: Any) -> None:
    client.run("import atexit; atexit.register(lambda: open('left', 'w').write('bye')); None")
    client.ask("shutdown_request", channel="control")
    assert kernel.wait() == 0
    assert (kernel.file.parent / "work/left").read_text() == "bye"


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_in_order(kernel: Any, client: Any, sig: signal.Signals) -> None:
    running = client.start("import time; time.sleep(100)")
    while client.receive("iopub")["msg_type"] != "execute_input":
        pass
    kernel.process.send_signal(sig)
    assert client.reply(running)["content"]["status"] == "error"
    assert kernel.wait() == 0
    assert not kernel.file.exists()


def test_next_kernel_is_fresh(start: Any) -> None:
    """They share a supervisor and nothing else."""
    first = start()
    assert first.client().run("x = 1; x").result() == "1"
    first.close()
    second = start()
    assert second.client().run("'x' in globals()").result() == "False"


def test_side_requests_are_answered_while_a_cell_runs(client: Any) -> None:
    request = client.start("import time; time.sleep(100)")
    while client.receive("iopub")["msg_type"] != "execute_input":
        pass
    answer = client.reply(client.send("control", "usage_request"), "control")["content"]
    assert "status" in answer or "kernel_memory" in answer
    client.ask("interrupt_request", channel="control")
    assert client.finish(request).content["ename"] == "KeyboardInterrupt"


def test_debug_requests_are_answered_while_a_cell_runs(client: Any) -> None:
    request = client.start("import time; time.sleep(100)")
    while client.receive("iopub")["msg_type"] != "execute_input":
        pass
    content = {"type": "request", "seq": 7, "command": "debugInfo", "arguments": {}}
    answer = client.reply(client.send("control", "debug_request", content), "control")["content"]
    assert (answer["type"], answer["request_seq"], answer["command"]) == ("response", 7, "debugInfo")
    client.ask("interrupt_request", channel="control")
    client.finish(request)
