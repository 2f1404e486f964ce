"""What scripts/test leaves to scripts/soak: most rounds of races, and of each kind of peers all but one."""

import os
from collections.abc import Iterable

import pytest

# Whether scripts/soak runs the tests: also what differs little from other cases.
ALL = os.environ.get("CG_ROUNDS") == "all"


def rounds(n: int, short: int = 0) -> int:
    """As many rounds as `short`, by default a quarter of them; scripts/soak runs all of them."""
    return n if ALL else short or n // 4


# Runs a program of somebody else as another test does that scripts/test runs: scripts/soak --only peers runs this one.
peer = pytest.mark.peer

# Takes seconds of processor time, for little that cheaper tests beside it do not find: scripts/soak --only peers runs it.
dear = pytest.mark.peer


def with_peers(cases: Iterable[object], *representatives: object) -> list[object]:
    """Cases for parametrize(); those that are no representatives of their kind have the mark `peer`."""
    found = list(cases)
    assert all(r in found for r in representatives)
    return [
        case if case in representatives else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=peer)
        for case in found
    ]
