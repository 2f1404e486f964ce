"""The message tables of src/base/wire.h, for tests that use a wire and for the comparison with docs/wire.md."""

import re
import struct
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

BASE = Path(__file__).resolve().parent.parent / "src/base"
# magic, version, wire, type, flags, session, id
HEADER = struct.Struct("<2sBBHHQQ")
ROLES = {"H": "host", "S": "supervisor", "K": "kernel", "T": "tool server"}
ANY_NUMBER = "CG_RAWS_ANY"


@dataclass
class Spec:
    """One row of a table."""

    number: int
    sender: str
    body_max: int  # bytes; 0: must be empty
    raw_max: int  # bytes of all raw frames together
    raws: int | None  # raw frames; None: any number


@dataclass
class Wire:
    """One table."""

    number: int
    specs: dict[str, Spec]


def _constants(text: str) -> dict[str, int]:
    """The numbers among the macros of a header: `1000`, `1000u`, `(16u << 20)`."""
    found = re.findall(r"^#define (CG_\w+) \(?(\d+)u?(?: << (\d+)\))?$", text, re.M)
    return {name: int(number) << int(shift or 0) for name, number, shift in found}


def _spec(number: str, sender: str, body: str, raw: str, raws: str, constants: dict[str, int]) -> Spec:
    def value(word: str) -> int:
        return int(word) if word.isdigit() else constants[word]

    senders = " or ".join(ROLES[role] for role in sender.split(" | "))
    return Spec(int(number), senders, value(body), value(raw), None if raws == ANY_NUMBER else value(raws))


def _read() -> tuple[int, dict[str, Wire]]:
    header = (BASE / "wire.h").read_text()
    constants = _constants((BASE / "ceilings.h").read_text()) | _constants(header)
    numbers = re.findall(r'^const struct cg_wire cg_wire_(\w+) = { "\1", (\d+),', (BASE / "wire.c").read_text(), re.M)
    wires = {}
    for wire, number in numbers:
        # The macro continues as long as its lines end in a backslash.
        table = re.search(rf"^#define CG_{wire.upper()}_MSGS\(X\)(?:.*\\\n)+.*$", header, re.M)
        assert table, f"no table of the {wire} wire in wire.h"
        rows = re.findall(r"X\((\w+), (\d+), (\w(?: \| \w)*), (\w+), (\w+), (\w+)\)", table[0])
        assert len(rows) == table[0].count("X("), f"the {wire} wire's table has a row of another form"
        wires[wire] = Wire(int(number), {name: _spec(*rest, constants) for name, *rest in rows})
    return constants["CG_WIRE_VERSION"], wires


VERSION, WIRES = _read()


def _messages(wire: str) -> type[IntEnum]:
    return IntEnum(wire.upper(), {name: spec.number for name, spec in WIRES[wire].specs.items()})


# The numbers of the messages: TOOL.CALL.
HOST, KERNEL, TOOL, BROKER = map(_messages, ("host", "kernel", "tool", "broker"))
HOST_WIRE, KERNEL_WIRE, TOOL_WIRE, BROKER_WIRE = (WIRES[w].number for w in ("host", "kernel", "tool", "broker"))
