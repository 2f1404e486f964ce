"""The host does not read for a while: its messages and the sandbox wait, and no message is lost."""

from __future__ import annotations

import threading
import time

from egress.harness import Box, Egress

MANY = 3000  # decisions: more than all sockets and queues on the way to the host hold


class Flood:
    """Connections that are refused without a question, one after the other."""

    def __init__(self, box: Box) -> None:
        self.box = box
        self.n = 0
        self.error: Exception | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            while self.n < MANY:
                assert self.box.raw(b"\x16") == b""
                self.n += 1
        except Exception as e:
            self.error = e

    def wait_until_it_stands(self) -> None:
        n = -1
        while self.thread.is_alive() and n != self.n:
            n = self.n
            time.sleep(0.5)


def test_notes_and_ends_of_questions_wait_for_the_host(egress: Egress) -> None:
    box = egress.open({"ask": True})
    asked = {}
    for i in range(20):
        s = box.connect()
        s.sendall(f"CONNECT {i}.example.com:443 HTTP/1.1\r\n\r\n".encode())
        asked[egress.wait("egress_request")["id"]] = s
    flood = Flood(box)
    flood.wait_until_it_stands()
    for s in asked.values():
        s.close()
    time.sleep(0.5)  # for the proxy to see it before the host reads again
    seen = {"decision": 0, "egress_cancel": 0}
    while seen["decision"] < MANY or seen["egress_cancel"] < len(asked):
        message = egress.receive(egress.timeout)
        assert message is not None, f"{seen}, and no more comes"
        seen[message["type"]] += 1
        assert message.get("id", next(iter(asked))) in asked
    flood.thread.join()
    assert flood.error is None
    assert egress.receive(0.3) is None
