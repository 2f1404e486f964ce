"""Allowed and denied destinations, their reports, and questions to the host."""

import socket

import pytest
from egress.harness import Egress, Json, Peer, Server, as_policy, http_server, read_all, read_head, status_of


def connect_status(egress: Egress, policy: Json, host: str, port: int) -> int:
    box = egress.open(policy)
    s, head = box.tunnel(host, port)
    s.close()
    return status_of(head)


@pytest.mark.parametrize(
    "spelling", ["127.0.0.1", "127.1", "0x7f.0.0.1", "0177.0.0.1", "2130706433", "[::ffff:127.0.0.1]", "127.0.0.1."]
)
def test_every_spelling_of_an_address_is_one_address(egress: Egress, peer: Peer, spelling: str) -> None:
    assert connect_status(egress, {"allowedDomains": ["127.0.0.1"]}, spelling, peer.port) == 200
    denied = {"allowedDomains": ["127.0.0.1"], "deniedDomains": ["127.0.0.1"]}
    egress.send({"type": "close", "sandbox": 1})
    assert connect_status(egress, denied, spelling, peer.port) == 403


@pytest.mark.parametrize("spelling", ["0.0.0.0", "0", "0x0.0", "[::ffff:0.0.0.0]", "[::]"])
def test_the_unspecified_addresses_are_denied_with_loopback(egress: Egress, peer: Peer, spelling: str) -> None:
    """Linux connects to loopback instead."""
    denied = {"allowedDomains": ["0.0.0.0", "[::]"], "deniedDomains": ["127.0.0.1", "[::1]"]}
    assert connect_status(egress, denied, spelling, peer.port) == 403


@pytest.mark.parametrize(
    "host",
    [
        "evil.com",
        "allowed.com.evil.com",
        "xallowed.com",
        "allowed.com",
        "127.0.0.1",
        "[::1]",
        "a.allowed.comx",
        "a.allowed.com.x",
    ],
)
def test_wildcards_are_names_below(egress: Egress, host: str) -> None:
    assert connect_status(egress, {"allowedDomains": ["*.allowed.com"]}, host, 443) == 403


def test_ports(egress: Egress, peer: Peer) -> None:
    assert connect_status(egress, {"allowedDomains": [f"127.0.0.1:{peer.port}"]}, "127.0.0.1", peer.port) == 200
    egress.send({"type": "close", "sandbox": 1})
    assert connect_status(egress, {"allowedDomains": ["127.0.0.1:1"]}, "127.0.0.1", peer.port) == 403


@pytest.mark.parametrize(
    "host",
    [
        b"evil.com\0.allowed.com",
        b"::ffff:127.0.0.1%x.allowed.com",
        b"a.allowed.com\r\nX: y",
        b"",
        b"a b.allowed.com",
        b"\xff.allowed.com",
    ],
)
def test_hosts_that_are_none(egress: Egress, host: bytes) -> None:
    box = egress.open({"allowedDomains": ["*.allowed.com", "127.0.0.1"]})
    s, code = box.socks(host, 80)
    s.close()
    assert code == 2
    event = egress.decision()
    assert not event["allowed"] and "malformed host" in event["why"]


def test_an_empty_list_allows_nothing(egress: Egress, peer: Peer) -> None:
    assert connect_status(egress, {"allowedDomains": [], "deniedDomains": []}, "127.0.0.1", peer.port) == 403


def test_what_a_denied_request_gets(egress: Egress) -> None:
    """srt's status, header and first line; then what to do about it."""
    box = egress.open({"allowedDomains": ["allowed.example.com"]})
    done = box.curl("-i", "http://Blocked.example.com/")
    head, body = done.stdout.split("\n\n", 1)
    assert head.startswith("HTTP/1.1 403 Forbidden\n")
    assert "X-Proxy-Error: blocked-by-allowlist\n" in head and "Content-Type: text/plain\n" in head
    assert body.splitlines() == [
        "Connection blocked by network allowlist",
        "blocked.example.com:80: host is not on the allow list; "
        'to allow it, add "blocked.example.com:80" to network.allowedDomains',
    ]
    assert egress.decision() == {
        "type": "decision",
        "sandbox": 1,
        "operation": "network-outbound",
        "protocol": "http",
        "host": "blocked.example.com",
        "port": 80,
        "allowed": False,
        "list": None,
        "rule": None,
        "address": None,
        "why": "host is not on the allow list",
        "how": 'add "blocked.example.com:80" to network.allowedDomains',
        "line": "deny network-outbound blocked.example.com:80 (host is not on the allow list)",
    }


def test_what_a_denied_tunnel_gets(egress: Egress) -> None:
    policy = {
        "deniedDomains": ["*.evil.com", "dull.com"],
        "deniedDomainReasons": {"*.evil.com": "ask Bob\n\u00fc" + "x" * 600},
    }
    box = egress.open(policy)
    with box.connect() as s:
        s.sendall(b"CONNECT a.evil.com:443 HTTP/1.1\r\n\r\n")
        answer = read_all(s)
    status_line = answer.split(b"\r\n")[0]
    assert status_line.startswith(b"HTTP/1.1 403 ask Bob?") and len(status_line) <= 13 + 500
    assert b"\r\nX-Proxy-Error: blocked-by-allowlist\r\n" in answer
    event = egress.decision()
    assert (event["list"], event["rule"]) == ("deniedDomains", "*.evil.com")
    assert event["how"] == 'remove "*.evil.com" from network.deniedDomains'
    with box.connect() as s:
        s.sendall(b"CONNECT dull.com:443 HTTP/1.1\r\n\r\n")
        assert read_all(s).startswith(b"HTTP/1.1 403 host is on the deny list\r\n")


def test_a_denied_request_with_a_body(egress: Egress) -> None:
    """The answer arrives although the client still sends."""
    box = egress.open({})
    done = box.curl("--data-binary", "x" * 100_000, "-H", "Expect:", "http://blocked.example.com/")
    assert done.stdout.startswith("Connection blocked by network allowlist\n"), done


# ---------------------------------------------------------------- asking


def ask(egress: Egress, decision: str, reason: str | None = None, times: int = 1) -> tuple[list[int], int]:
    """Statuses of so many requests in a row, and how many questions they made."""
    statuses, questions = [], 0
    with http_server() as server:
        box = egress.open({"ask": True})
        for _ in range(times):
            with box.connect() as s:
                s.sendall(f"CONNECT 127.0.0.1:{server.port} HTTP/1.1\r\n\r\n".encode())
                while (message := egress.receive()) is not None and message["type"] != "decision":
                    questions += 1
                    assert message["type"] == "egress_request"
                    assert (message["host"], message["port"], message["protocol"]) == (
                        "127.0.0.1",
                        server.port,
                        "connect",
                    )
                    assert message["address"] == "a loopback address"
                    answer: Json = {"type": "answer", "id": message["id"], "decision": decision}
                    egress.send({**answer, "reason": reason} if reason else answer)
                head = read_head(s)
                statuses.append(status_of(head))
                if reason:
                    assert reason.encode() in head
    return statuses, questions


def test_once(egress: Egress) -> None:
    assert ask(egress, "once", times=2) == ([200, 200], 2)


def test_session(egress: Egress) -> None:
    assert ask(egress, "session", times=3) == ([200, 200, 200], 1)


def test_no(egress: Egress) -> None:
    assert ask(egress, "no", times=2) == ([403, 403], 2)


def test_never(egress: Egress) -> None:
    assert ask(egress, "never", reason="not today", times=3) == ([403, 403, 403], 1)


def test_anything_else_is_no(egress: Egress) -> None:
    assert ask(egress, "yes") == ([403], 1)


def test_no_answer_is_no(egress: Egress) -> None:
    box = egress.open({"ask": True, "askTimeoutMs": 200})
    s, head = box.tunnel("ask.example.com", 443)
    s.close()
    assert head.startswith(b"HTTP/1.1 403 the question whether to allow it was not answered in time\r\n")
    # An answer that comes later changes nothing.
    request = egress.wait("egress_request")
    egress.send({"type": "answer", "id": request["id"], "decision": "session"})
    s, head = box.tunnel("ask.example.com", 443)
    s.close()
    assert status_of(head) == 403


def test_one_question_for_all_who_wait(egress: Egress, peer: Peer) -> None:
    box = egress.open({"ask": True})
    waiting = [box.connect() for _ in range(5)]
    for s in waiting:
        s.sendall(f"CONNECT 127.0.0.1:{peer.port} HTTP/1.1\r\n\r\n".encode())
    request = egress.wait("egress_request")
    assert egress.receive(0.3) is None
    egress.send({"type": "answer", "id": request["id"], "decision": "once"})
    assert {status_of(read_head(s)) for s in waiting} == {200}
    for s in waiting:
        s.close()


def test_an_answer_is_for_one_port(egress: Egress, peer: Peer, server: Server) -> None:
    box = egress.open({"ask": True})
    for port in (peer.port, server.port):
        with box.connect() as s:
            s.sendall(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n".encode())
            request = egress.wait("egress_request")
            assert request["port"] == port
            egress.send({"type": "answer", "id": request["id"], "decision": "session"})
            assert status_of(read_head(s)) == 200


def test_the_lists_are_not_asked_about(egress: Egress, peer: Peer) -> None:
    policy = {"ask": True, "allowedDomains": ["127.0.0.1"], "deniedDomains": ["evil.com"]}
    box = egress.open(policy)
    assert box.tunnel("127.0.0.1", peer.port)[1].startswith(b"HTTP/1.1 200")
    assert box.tunnel("evil.com", 443)[1].startswith(b"HTTP/1.1 403")
    assert {m["type"] for m in egress.events} <= {"ready", "opened", "decision"}


def test_strict_is_never_asked(egress: Egress) -> None:
    box = egress.open({"ask": True, "strictAllowlist": True})
    assert b"host is not on the allow list" in box.tunnel("a.b", 443)[1]


def test_questions_have_a_ceiling(egress: Egress) -> None:
    box = egress.open({"ask": True})
    waiting = []
    for i in range(32):
        s = box.connect()
        s.sendall(f"CONNECT n{i}.example.com:443 HTTP/1.1\r\n\r\n".encode())
        egress.wait("egress_request")
        waiting.append(s)
    assert b"too many questions" in box.tunnel("last.example.com", 443)[1]
    for s in waiting:
        s.close()


# ---------------------------------------------------------------- several sandboxes, changes


def test_sandboxes_are_apart(egress: Egress, peer: Peer) -> None:
    one = egress.open({"allowedDomains": ["127.0.0.1"]}, 1)
    two = egress.open({}, 2)
    assert status_of(one.tunnel("127.0.0.1", peer.port)[1]) == 200
    assert status_of(two.tunnel("127.0.0.1", peer.port)[1]) == 403
    assert [egress.decision()["sandbox"], egress.decision()["sandbox"]] == [1, 2]


def test_closing_a_sandbox_ends_its_connections_only(egress: Egress, peer: Peer) -> None:
    policy = {"allowedDomains": ["127.0.0.1"]}
    one, two = egress.open(policy, 1), egress.open(policy, 2)
    first, _ = one.tunnel("127.0.0.1", peer.port)
    second, _ = two.tunnel("127.0.0.1", peer.port)
    far_first = peer.accept()
    far = peer.accept()
    egress.send({"type": "close", "sandbox": 1})
    assert read_all(first) == b""
    far.sendall(b"x")
    assert second.recv(1) == b"x"
    with pytest.raises(ConnectionRefusedError):
        one.connect()
    two.connect().close()
    far_first.close()


def test_a_new_policy_holds_from_then_on(egress: Egress, peer: Peer) -> None:
    box = egress.open({"allowedDomains": ["127.0.0.1"]})
    s, head = box.tunnel("127.0.0.1", peer.port)
    far = peer.accept()
    assert status_of(head) == 200
    egress.send({"type": "policy", "sandbox": 1, "policy": as_policy({"allowedDomains": []})})
    # The change and the request come by two ways: the answer to the second message says that the first was read.
    egress.send({"type": "policy", "sandbox": 9, "policy": as_policy({})})
    assert egress.wait("error")["message"] == "no such sandbox"
    assert status_of(box.tunnel("127.0.0.1", peer.port)[1]) == 403
    far.sendall(b"x")
    assert s.recv(1) == b"x"


@pytest.mark.parametrize(("more", "status"), [({}, 200), ({"deniedDomains": ["127.0.0.1"]}, 403), ({"strictAllowlist": True}, 403)])
def test_a_new_policy_holds_for_open_questions(egress: Egress, peer: Peer, more: Json, status: int) -> None:
    box = egress.open({"ask": True})
    with box.connect() as s:
        s.sendall(f"CONNECT 127.0.0.1:{peer.port} HTTP/1.1\r\n\r\n".encode())
        request = egress.wait("egress_request")
        egress.send({"type": "policy", "sandbox": 1, "policy": as_policy({"ask": True, **more})})
        egress.send({"type": "answer", "id": request["id"], "decision": "once"})
        assert status_of(read_head(s)) == status


@pytest.mark.parametrize(
    ("policy", "word"),
    [
        ({"allowedDomains": ["*"]}, "allowedDomains"),
        ({"tlsTerminate": {}}, "tlsTerminate"),
        ({"deniedResolvedAddresses": ["x"]}, "CIDR"),
    ],
)
def test_a_wrong_policy_opens_nothing(egress: Egress, policy: Json, word: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        egress.send({"type": "open", "sandbox": 1, "listeners": 1, "policy": as_policy(policy)}, [listener.fileno()])
        assert word in egress.wait("error")["message"]
    egress.open({}, 1)


def test_only_denials(egress: Egress, peer: Peer) -> None:
    box = egress.open({"allowedDomains": ["127.0.0.1"], "events": "denied"})
    box.tunnel("127.0.0.1", peer.port)[0].close()
    box.tunnel("127.0.0.2", peer.port)[0].close()
    assert egress.decision()["host"] == "127.0.0.2"
