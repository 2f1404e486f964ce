"""docs/wire.md has the tables of src/base/wire.h, message by message."""

import re
from pathlib import Path

import pytest
from wire_table import WIRES, Spec

HEADING = re.compile(r"^## \w+ wire \(`cg_wire_(\w+)`\)$", re.M)
ROW = re.compile(r"^\| (\d+) \| (\w+) \| ([\w ]+) \| ([^|]*?) ?\| ([^|]*?) ?\| ", re.M)


def size(number: int) -> str:
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if number >= unit and number % unit == 0:
            return f"{number // unit} {name}"
    return f"{number} bytes"


def documented(spec: Spec) -> tuple[int, str, str, str]:
    """Return the page's expected row of a message: number, sender, limit of the body, raw frames."""
    body = size(spec.body_max) if spec.body_max else ""
    count = "any" if spec.raws is None else str(spec.raws)
    return spec.number, spec.sender, body, "" if spec.raws == 0 else f"{count}, {size(spec.raw_max)}"


@pytest.fixture(scope="module")
def sections(repo: Path) -> dict[str, str]:
    """The text of the page below the heading of each wire."""
    _, *parts = HEADING.split((repo / "docs/wire.md").read_text())
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_every_wire_has_its_section(sections: dict[str, str]) -> None:
    assert list(sections) == list(WIRES) == ["host", "kernel", "tool", "broker"]


@pytest.mark.parametrize("wire", WIRES)
def test_messages_senders_and_limits_are_those_of_the_header(sections: dict[str, str], wire: str) -> None:
    rows = [(name, (int(no), *rest)) for no, name, *rest in ROW.findall(sections[wire])]
    assert len(rows) == len(re.findall(r"^\| \d", sections[wire], re.M)), "a row of another form"
    assert len(rows) == len(dict(rows)), "a message has two rows"
    assert dict(rows) == {name: documented(spec) for name, spec in WIRES[wire].specs.items()}
