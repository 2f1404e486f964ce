"""Hundreds of requests of every kind from two clients at once: each has one reply, one busy and one idle, in this order."""

import random
import time
from collections import defaultdict
from queue import Empty
from typing import Any

import pytest
from clients.support import Jupyter, Kernel
from rounds import ALL, rounds

Message = dict[str, Any]

CELLS = (
    "1",
    "print('x' * 10)",
    "1/0",
    "import sys; print('e', file=sys.stderr)",
    "display({'text/plain': 'd'}, raw=True)",
    "!echo shell",
    "await __import__('asyncio').sleep(0.001)",
    "raise KeyboardInterrupt",
    "def f(:",
    "'\\ud800'",
    "raise ValueError('\\udfff')",
    "input()",
    "import os; os.fork() or os._exit(0)",
    "__import__('threading').Thread(target=print, args=('t',)).start()",
    "",
)
DEATHS = ("import os; os._exit(1)", "import ctypes; ctypes.string_at(0)", "import os; os.kill(os.getpid(), 9)")

REQUESTS: tuple[tuple[str, Message], ...] = (
    ("kernel_info_request", {}),
    ("complete_request", {"code": "zi", "cursor_pos": 2}),
    ("complete_request", {"code": "zi", "cursor_pos": 10**6}),
    ("complete_request", {"code": "zi", "cursor_pos": -1}),
    ("complete_request", {}),
    ("inspect_request", {"code": "zip", "cursor_pos": 3, "detail_level": 1}),
    ("inspect_request", {"code": 5, "cursor_pos": "x"}),
    ("is_complete_request", {"code": "for"}),
    ("is_complete_request", {}),
    ("history_request", {"hist_access_type": "tail", "n": 3, "raw": True, "output": True}),
    ("history_request", {"hist_access_type": "nonsense"}),
    ("comm_info_request", {}),
    ("connect_request", {}),
    ("execute_request", {}),
    ("execute_request", {"code": ["not a string"]}),
)
# For these requests the protocol requires busy and idle, and no reply.
SILENT: tuple[tuple[str, Message], ...] = (
    ("comm_open", {"comm_id": "x", "target_name": "unknown", "data": {}}),
    ("comm_msg", {"comm_id": "nobody", "data": {}}),
    ("comm_close", {"comm_id": "nobody", "data": {}}),
    ("no_such_request", {}),
)
STATUSES = {
    "execute_request": ("ok", "error", "aborted"),
    "is_complete_request": ("complete", "incomplete", "invalid", "unknown", "error"),
}
CONTROL = ("kernel_info_request", "interrupt_request", "usage_request", "list_subshell_request")


class Client:
    """Collects what comes back, by request."""

    def __init__(self, kernel: Kernel) -> None:
        self.client = kernel.client
        self.sent: dict[str, tuple[str, str]] = {}
        self.replies: dict[str, list[Message]] = defaultdict(list)
        self.published: dict[str, list[Message]] = defaultdict(list)

    def send(self, channel: str, kind: str, content: Message) -> None:
        message = self.client.session.msg(kind, content)
        getattr(self.client, f"{channel}_channel").send(message)
        self.sent[message["header"]["msg_id"]] = (channel, kind)

    def execute(self, code: str, **options: bool) -> None:
        content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
        self.send("shell", "execute_request", {**content, "stop_on_error": False, **options})

    def collect(self) -> int:
        """Takes what has come. Returns how many messages."""
        n = 0
        channels = (("shell", self.replies), ("control", self.replies), ("iopub", self.published))
        for channel, found in channels:
            while True:
                try:
                    message = getattr(self.client, f"get_{channel}_msg")(timeout=0)
                except Empty:
                    break
                n += 1
                found[message["parent_header"].get("msg_id", "")].append(message)
        return n

    def missing(self) -> list[str]:
        """Requests without a reply or without their idle."""
        quiet = {kind for kind, _ in SILENT}
        return [
            f"{channel} {kind}"
            for request, (channel, kind) in self.sent.items()
            if (kind not in quiet and not self.replies[request]) or "idle" not in states(self.published[request])
        ]


def states(messages: list[Message]) -> list[str]:
    return [m["content"]["execution_state"] for m in messages if m["msg_type"] == "status"]


def check(client: Client) -> None:
    quiet = {kind for kind, _ in SILENT}
    for request, (channel, kind) in client.sent.items():
        replies, published = client.replies[request], client.published[request]
        what = (
            f"{channel} {kind}: {[m['content'] for m in replies]} {[(m['msg_type'], m['content']) for m in published]}"
        )
        assert len(replies) == (0 if kind in quiet else 1), what
        assert states(published) == ["busy", "idle"], what
        assert published[0]["msg_type"] == published[-1]["msg_type"] == "status", what
        for reply in replies:
            assert reply["msg_type"] == kind.replace("_request", "_reply"), what
            content = reply["content"]
            assert content["status"] in STATUSES.get(kind, ("ok", "error")), what
            errors = [m["content"]["ename"] for m in published if m["msg_type"] == "error"]
            if kind != "execute_request" or content["status"] != "error":
                assert errors == [], what
            elif content["ename"] == "KeyboardInterrupt":  # perhaps while another exception was being shown
                assert errors[-1:] == ["KeyboardInterrupt"], what
            elif content["ename"] != "BadRequest":  # a request that is none is no cell
                assert errors == [content["ename"]], what


@pytest.mark.parametrize(
    ("transport", "deadly"),
    [("ipc", False), ("tcp", True), *([("tcp", False), ("ipc", True)] if ALL else [])],
    ids=lambda v: v if isinstance(v, str) else "dying" if v else "living",
)
def test_storm(jupyter: Jupyter, spec: str, slowness: float, transport: str, deadly: bool) -> None:
    chance = random.Random(f"{transport} {deadly}")  # the same storm each time
    with jupyter.kernel(spec, transport) as kernel:
        other = Kernel(kernel.manager, slowness)
        other.client.wait_for_ready(timeout=60 * slowness)
        clients = [Client(kernel), Client(other)]
        try:
            for i in range(rounds(200)):
                client = chance.choice(clients)
                kind = chance.random()
                if deadly and i % 50 == 25:
                    client.execute(chance.choice(DEATHS))
                elif kind < 0.45:
                    client.execute(
                        chance.choice(CELLS), silent=chance.random() < 0.1, stop_on_error=chance.random() < 0.2
                    )
                elif kind < 0.8:
                    client.send("shell", *chance.choice(REQUESTS))
                elif kind < 0.9:
                    client.send("shell", *chance.choice(SILENT))
                else:
                    client.send("control", chance.choice(CONTROL), {})
                if chance.random() < 0.2:
                    time.sleep(0.005)
                for c in clients:
                    c.collect()
            deadline = time.monotonic() + 40 * slowness
            while any(c.missing() for c in clients) and time.monotonic() < deadline:
                if not sum(c.collect() for c in clients):
                    time.sleep(0.01)
            for c in clients:
                assert c.missing() == []
            time.sleep(0.2)  # for what comes once too often
            for c in clients:
                c.collect()
                check(c)
        finally:
            other.client.stop_channels()
