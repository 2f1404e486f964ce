"""A node that lies: a relay between the host and a real one. `node.py HOW RELAY...`; see MODES."""

import json
import os
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

LINE = b"cellgate-relay "
DATA, END, STOP, CREDIT, OPEN, PING = range(6)
WIRE = 1
HEADER = struct.Struct("<2sBBHHQQ")


def frame(channel: int, kind: int, data: bytes = b"", length: int | None = None) -> bytes:
    return struct.pack(">II", channel, kind << 24 | (len(data) if length is None else length)) + data


def say(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def answer(**members: object) -> None:
    sys.stdin.buffer.readline()
    say(LINE + json.dumps(members).encode() + b"\n")


def message(like: bytes, kind: int, number: int, body: bytes, raw: str) -> bytes:
    """A message of the host wire, of the session of the message @like."""
    magic, version, wire, _, _, session, _ = HEADER.unpack(like)
    head = HEADER.pack(magic, version, wire, kind, 0, session, number)
    frames = [head, body, *([raw.encode()] if raw != "none" else [])]
    return b"".join(
        bytes([2 | (i < len(frames) - 1)]) + struct.pack(">Q", len(part)) + part for i, part in enumerate(frames)
    )


def constant(header: str, name: str) -> int:
    """A number of a header of src/."""
    text = (Path(__file__).resolve().parents[2] / "src" / header).read_text()
    return int(text.partition(f"#define {name} ")[2].split()[0])


WIRE_VERSION = constant("base/wire.h", "CG_WIRE_VERSION")
LINK_VERSION = constant("relay/relay.h", "CG_LINK_VERSION")
GOOD = {"relay": LINK_VERSION, "wire": WIRE_VERSION, "version": "0.1.0", "cwd": "/", "user_env": {}}
BAD_FRAMES = {
    "unknown-type": frame(0, 77),
    "too-long": frame(1, DATA, length=0xFFFFFF),
    "opens": frame(5, OPEN, b"12345678"),
    "no-channel": frame(9, DATA, b"x"),
    "ends-nothing": frame(9, END),
    "ends-twice": frame(1, END) * 2,
    "after-end": frame(1, END) + frame(1, DATA, b"x"),
    "credit": frame(1, CREDIT, length=0xFFFFFF),
    "window": b"".join(frame(0, DATA, b"x" * 65536) for _ in range(40)),
    "garbage": os.urandom(100_000),
}


def pass_on(
    relay: list[str],
    change: dict[bytes, bytes],
    inject: Callable[[bytes], bytes] | None = None,
    record: str = os.devnull,
) -> None:
    """Replaces bytes of what the real node says, or adds what @inject makes to output "inject now"."""
    p = subprocess.Popen(relay, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert p.stdin and p.stdout
    threading.Thread(target=forward, args=(p.stdin, record), daemon=True).start()
    say(p.stdout.readline())
    while len(head := p.stdout.read(8)) == 8:
        channel, word = struct.unpack(">II", head)
        kind, length = word >> 24, word & 0xFFFFFF
        data = b"" if kind == CREDIT else p.stdout.read(length)
        for old, new in change.items():
            data = data.replace(old, new)
        say(head + data)
        if inject and b"inject now" in data:
            at = data.index(b"CG" + bytes([WIRE_VERSION]))
            say(frame(WIRE, DATA, inject(data[at : at + HEADER.size])))
    p.wait()


def forward(to: IO[bytes], record: str) -> None:
    with open(record, "ab", buffering=0) as copy:
        while data := os.read(0, 65536):
            copy.write(data)
            to.write(data)
            to.flush()
    to.close()


def main(how: str, relay: list[str]) -> None:
    if how == "motd":
        say(b"Last login: yesterday\n\n\x1b[1mwelcome\x1b[0m\n")
        pass_on(relay, {})
    elif how == "says":
        say(b"cellgate: command not found\x1b]0;title\x07\n")
    elif how == "silent":
        time.sleep(600)
    elif how == "endless":
        while True:
            say(b"x" * 65536)
    elif how == "other-wire":
        answer(**{**GOOD, "wire": 99, "version": "9.9.9"})
    elif how == "no-object":
        sys.stdin.buffer.readline()
        say(LINE + b"[1]\n")
    elif how in BAD_FRAMES:
        answer(**GOOD)
        say(BAD_FRAMES[how])
        time.sleep(600)
    elif how == "other-arguments":
        pass_on(relay, {b"SAFE": b"EVIL"})
    elif how == "other-report":
        pass_on(relay, {b'"status":"full"': b'"status":"evil"', b'"status": "full"': b'"status": "evil"'})
    elif how == "replace":  # of the same length
        pass_on(relay[2:], {relay[0].encode(): relay[1].encode()})
    elif how == "record":
        pass_on(relay[1:], {}, record=relay[0])
    elif how == "frozen":
        pass_on(relay, {})
    else:
        kind, body, times, step, raw = (
            int(relay[0]),
            relay[1].encode(),
            int(relay[2]),
            int(relay[3]),
            relay[5].replace("BIG", "x" * 3_000_000),
        )
        numbers = [int(relay[4]) + i * step for i in range(times)]
        pass_on(relay[6:], {}, lambda like: b"".join(message(like, kind, n, body, raw) for n in numbers))


main(sys.argv[1], sys.argv[2:])
