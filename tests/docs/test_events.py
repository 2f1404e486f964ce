"""docs/events.md has the events of the supervisor's table."""

import re
from pathlib import Path

ROW = re.compile(r'X\([A-Z_]+, "([a-z.]+)", (true|false),\s*\\?\s*"([^"]+)"\)')


def test_the_table_of_events_is_that_of_the_code(repo: Path) -> None:
    rows = ROW.findall((repo / "src/base/bus_events.h").read_text())
    assert len(rows) == (repo / "src/base/bus_events.h").read_text().count("X(") - 1 >= 24
    documented = re.findall(r"^\| `([a-z]+\.[a-z]+)` \| (.*) \|$", (repo / "docs/events.md").read_text(), re.M)
    expected = [(name, what + "; programs can add it" * (adds == "true")) for name, adds, what in rows]
    assert documented == expected
