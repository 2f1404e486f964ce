"""Rules of the wires: a kernel that breaks one is disconnected; the others continue."""

import json
import os

import pytest
from wire_table import BROKER, BROKER_WIRE, HEADER, TOOL, TOOL_WIRE, VERSION


def header(type=TOOL.CALL, magic=b"CG", version=VERSION, wire=TOOL_WIRE, id=1):
    return HEADER.pack(magic, version, wire, type, 0, 0, id)


def body(**members):
    return json.dumps({"server": "fake", "tool": "echo", "timeout_ms": 0, **members}).encode()


BROKEN = {
    "no header": [b"hello"],
    "header alone": [header()],
    "magic": [header(magic=b"XX"), body(), b"{}"],
    "version": [header(version=9), body(), b"{}"],
    "another wire": [header(wire=BROKER_WIRE, type=BROKER.ASK_DECISION), b"{}"],
    "unknown type": [header(type=99), body(), b"{}"],
    "a result": [header(type=TOOL.CALL_RESULT), b'{"status":"ok"}', b"{}"],
    "no arguments": [header(), body()],
    "two raw frames": [header(), body(), b"{}", b"{}"],
    "many frames": [header(), *[b"{}"] * 80],
    "body is no JSON": [header(), b"{", b"{}"],
    "body is an array": [header(), b"[]", b"{}"],
    "body too large": [header(), body(x="x" * 5000), b"{}"],
    "no server": [header(), b'{"tool":"echo"}', b"{}"],
    "server is a number": [header(), body(server=1), b"{}"],
    "server with NUL": [header(), body(server="fake\0"), b"{}"],
    "long name": [header(), body(tool="x" * 300), b"{}"],
    "unknown method": [header(), b'{"server":"fake","method":"tools/list"}', b"{}"],
    "method and tool": [header(), body(method="resources/read"), b'{"uri":"x"}'],
    "tools/call without tool": [header(), b'{"server":"fake","method":"tools/call"}', b"{}"],
    "method is a number": [header(), b'{"server":"fake","method":1}', b'{"uri":"x"}'],
    "method without server": [header(), b'{"method":"resources/read"}', b'{"uri":"x"}'],
    "timeout is text": [header(), body(timeout_ms="1"), b"{}"],
    "timeout below 0": [header(), body(timeout_ms=-1), b"{}"],
    "read without members": [header(type=TOOL.RESULT_READ), b"{}"],
    "read with an empty body": [header(type=TOOL.RESULT_READ), b""],
    "read with a raw frame": [header(type=TOOL.RESULT_READ), b'{"result":1,"offset":0,"length":1}', b"x"],
    "read of nothing": [header(type=TOOL.RESULT_READ), b'{"result":1,"offset":0,"length":0}'],
    "read of too much": [header(type=TOOL.RESULT_READ), b'{"result":1,"offset":0,"length":1048577}'],
    "read before the start": [header(type=TOOL.RESULT_READ), b'{"result":1,"offset":-1,"length":1}'],
    "read of a negative result": [header(type=TOOL.RESULT_READ), b'{"result":-1,"offset":0,"length":1}'],
    "read with text": [header(type=TOOL.RESULT_READ), b'{"result":"1","offset":0,"length":1}'],
    "a part": [header(type=TOOL.RESULT_PART), b'{"status":"ok"}', b"x"],
    "free with a body": [header(type=TOOL.RESULT_FREE), b"{}"],
    "cancel with a body": [header(type=TOOL.CALL_CANCEL), b"{}"],
}


@pytest.fixture
def k(ts, fake):
    kernel = ts.attach()
    ts.add({"fake": fake()})
    return kernel


@pytest.mark.parametrize("what", BROKEN)
def test_broken_message_ends_the_connection(ts, k, what):
    other = ts.attach(2)
    k.call(1, "fake", "echo")
    ask = ts.asked()
    k.sock.send_multipart(BROKEN[what])
    violation = ts.broker.expect(BROKER.KERNEL_VIOLATION)
    assert violation.session == 1 and violation.id == 1 and violation.body["what"]
    assert ask.body["kernel"] == 1
    closed = ts.broker.expect(BROKER.ASK_CLOSED)
    assert closed.id == ask.id and "rules" in closed.body["why"]
    ts.decide(ask)
    k.send_if_connected(TOOL.CALL, 2, {"server": "fake", "tool": "echo"}, b"{}", 0)
    k.nothing()
    ts.broker.nothing()
    assert "cut off" in ts.log()
    # Its servers stay, and a new kernel of the session may call them; other sessions noticed nothing.
    assert ts.run(ts.attach(1), 1, "fake", "echo")[0] == "ok"
    other.call(1, "fake", "echo")
    assert other.result(1)[0] == "failed"


def test_id_in_use(ts, k):
    k.call(1, "fake", "echo")
    ts.asked()
    k.call(1, "fake", "echo")
    assert "in use" in ts.broker.expect(BROKER.KERNEL_VIOLATION).body["what"]
    ts.broker.expect(BROKER.ASK_CLOSED)
    k.nothing()


def test_id_of_a_kept_result(ts, k):
    assert ts.run(k, 1, "fake", "big", b'{"size":2000000}')[0] == "ok" and k.kind == "kept"
    k.call(1, "fake", "echo")
    assert "in use" in ts.broker.expect(BROKER.KERNEL_VIOLATION).body["what"]


def test_parts_that_nobody_reads(start, fake):
    """A kernel that reads no answers is not read from, either; when it reads, all of them come."""
    ts = start()
    k = ts.attach(unread=2)
    ts.add({"fake": fake()})
    ts.run(k, 1, "fake", "big", b'{"size":2000000}')
    before = ts.memory()
    for i in range(300):
        k.send(TOOL.RESULT_READ, 10 + i, {"result": 1, "offset": 0, "length": 1 << 20})
    other = ts.attach(2)
    ts.add({"fake": fake()}, 2)
    for i in range(20):
        assert ts.run(other, i, "fake", "echo")[0] == "ok"
    assert ts.memory() - before < 150_000_000 or "CG_SANITIZED" in os.environ
    for i in range(300):
        m = k.expect(TOOL.RESULT_PART)
        assert m.id == 10 + i and m.body == {"status": "ok"} and m.raw == b"b" * (1 << 20)
    assert ts.run(k, 2, "fake", "echo")[0] == "ok"


def test_too_many_calls(ts, k):
    for i in range(257):
        k.call(i, "fake", "echo")
    for _ in range(256):
        ts.asked()
    ts.broker.expect(BROKER.KERNEL_VIOLATION)
    for _ in range(256):
        ts.broker.expect(BROKER.ASK_CLOSED)
    ts.broker.nothing()


def test_too_many_bytes_of_arguments(ts, k):
    args = b'{"a":"' + b"x" * 4_000_000 + b'"}'
    for i in range(16):
        k.call(i, "fake", "echo", args)
        ts.asked()
    k.call(16, "fake", "echo", args)
    status, text = k.result(16)
    assert status == "failed" and b"64 MB" in text
    ts.broker.nothing()


def detach(ts):
    """Detach, and ignore answers to earlier requests."""
    ts.broker.send(BROKER.DETACH, body={"keep_servers": True}, session=1)
    while ts.broker.receive().type != BROKER.DETACHED:
        pass


def test_random_messages(start, fake):
    """After any message of one kernel, the process continues for the others."""
    ts = start()
    ts.add({"fake": fake()})
    good = [header(), body(), b'{"a":1}']
    for i in range(60):
        detach(ts)
        k = ts.attach()
        frames = [bytearray(f) for f in good]
        for _ in range(1 + i % 4):
            f = frames[os.urandom(1)[0] % 3]
            f[os.urandom(1)[0] % len(f)] = os.urandom(1)[0]
        k.sock.send_multipart([bytes(f) for f in frames])
        while k.sock.poll(20):
            k.sock.recv_multipart()
        k.sock.close()
    detach(ts)
    assert ts.run(ts.attach(), 1, "fake", "echo")[0] == "ok"


# ---- attach and detach


def test_detach_closes_what_is_asked(ts, k):
    k.call(1, "fake", "echo")
    ask = ts.asked()
    ts.broker.send(BROKER.DETACH, body={"keep_servers": True}, session=1)
    assert ts.broker.expect(BROKER.ASK_CLOSED).id == ask.id
    ts.broker.expect(BROKER.DETACHED)
    k.nothing()


def test_detach_tells_the_server_about_running_calls(ts, fake, tmp_path, waiting):
    log = tmp_path / "lines"
    k = ts.attach()
    ts.add({"fake": fake(log=str(log))})
    k.call(1, "fake", "hang")
    ts.decide(ts.asked())
    waiting(lambda: b"tools/call" in log.read_bytes(), 5, "the call")
    ts.detach(keep=True)
    waiting(lambda: b"notifications/cancelled" in log.read_bytes(), 5, "the cancel")


def test_servers_survive_a_new_kernel(ts, fake, tmp_path):
    log = tmp_path / "lines"
    k = ts.attach()
    ts.add({"fake": fake(log=str(log))})
    assert ts.run(k, 1, "fake", "echo")[0] == "ok"
    ts.detach(keep=True)
    assert ts.run(ts.attach(), 1, "fake", "echo")[0] == "ok"
    assert log.read_bytes().count(b"initialize") == 2  # and initialized: one start


def test_second_attach_replaces_the_first(ts, k):
    k.call(1, "fake", "echo")
    ask = ts.asked()
    ts.kernels += 1
    sock = ts.ctx.socket(k.sock.type)
    sock.bind(f"ipc://{ts.folder}/k{ts.kernels}")
    ts.broker.send(BROKER.ATTACH, body={"path": f"{ts.folder}/k{ts.kernels}"}, session=1)
    assert ts.broker.expect(BROKER.ASK_CLOSED).id == ask.id
    ts.broker.expect(BROKER.ATTACHED)
    k.nothing()


def test_detach_of_what_is_not_there(ts):
    ts.detach(77)
    ts.detach(77, keep=True)


def test_attach_without_a_usable_path(ts):
    ts.broker.send(BROKER.ATTACH, body={"path": "/" + "x" * 300}, session=1)
    assert "error" in ts.broker.expect(BROKER.ATTACHED).body
    ts.broker.send(BROKER.ATTACH, body={}, session=1)
    assert "error" in ts.broker.expect(BROKER.ATTACHED).body


@pytest.mark.parametrize(
    "bad",
    [
        {"out": "/tmp"},
        {"servers": [], "out": "/tmp"},
        {"servers": {}},
        {"servers": {}, "out": "relative"},
        {"servers": {}, "out": "/tmp", "timeout_ms": -1},
        {"servers": {}, "out": "/tmp", "timeout_ms": "1"},
        {"servers": {f"s{i}": {"command": "cat"} for i in range(65)}, "out": "/tmp"},
    ],
)
def test_bad_servers_request_is_answered(ts, bad):
    ts.broker.send(BROKER.SERVERS, 9, bad, session=1)
    m = ts.broker.expect(BROKER.SERVERS_DONE)
    assert m.id == 9 and m.body["error"]["message"]


def test_servers_request_of_a_session_that_ends(ts, fake):
    ts.broker.send(BROKER.SERVERS, 3, {"servers": {"slow": fake(initialize="hang")}, "out": str(ts.out)}, session=1)
    ts.broker.send(BROKER.DETACH, body={"keep_servers": False}, session=1)
    m = ts.broker.expect(BROKER.SERVERS_DONE)
    assert m.id == 3 and "ended" in m.body["error"]["message"]
    ts.broker.expect(BROKER.DETACHED)


def test_a_supervisor_that_breaks_the_rules(start):
    ts = start()
    ts.broker.sock.send_multipart([b"nonsense"])
    assert ts.wait() == 1
    ts.status = 0  # the fixture expects an orderly end in other tests
