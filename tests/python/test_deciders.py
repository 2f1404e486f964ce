"""Sessions with deciders="user": another program of the user decides."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cellgate
import pytest
from cellgate import aio
from shared_supervisor import runtime_folder

CODE = "from mcptools.echo import danger\nprint(danger.run(text='x'))"
# Waits for one question and decides about it.
OTHER = """
import json, select, sys
sys.path.insert(0, sys.argv[1])
import cellgate
with cellgate.Client() as c:
    while not (found := c.approvals()["approvals"]):
        select.select([c.approvals_fd()], [], [])
    q = c.approval(found[0]["id"])
    assert json.loads(q["arguments"]) == {"text": "x"}, q
    c.decide(q["id"], q["digest"], sys.argv[2] == "accept", None if sys.argv[2] == "accept" else "not today")
    try: c.decide(q["id"], q["digest"], True)
    except cellgate.NotFoundError: print("once")
"""


@pytest.fixture
def shared(package: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[cellgate.Client]:
    with runtime_folder() as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
        monkeypatch.delenv("CELLGATE_PRIVATE", raising=False)
        with cellgate.Client() as c:
            assert c.why_private is None
            yield c


@pytest.fixture
def other(package: Path) -> Callable[[str], subprocess.Popen[str]]:
    return lambda how: subprocess.Popen(
        [sys.executable, "-c", OTHER, str(package), how], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    )


@pytest.mark.parametrize("how", ["accept", "reject"])
def test_run_without_approve_leaves_it_to_others(
    shared: cellgate.Client,
    workspace: Path,
    servers: dict[str, Any],
    mark: Path,
    other: Callable[[str], subprocess.Popen[str]],
    how: str,
) -> None:
    with other(how) as program, cellgate.Session(workspace, client=shared, mcp_servers=servers, deciders="user") as s:
        done = s.run(CODE)
        assert program.communicate(timeout=60)[0] == "once\n"
    assert (done.status == "ok") is (how == "accept") is mark.exists()
    assert how == "accept" or "not today" in str(done.error)


@pytest.mark.anyio
async def test_with_asyncio(
    shared: cellgate.Client,
    workspace: Path,
    servers: dict[str, Any],
    mark: Path,
    other: Callable[[str], subprocess.Popen[str]],
) -> None:
    with other("accept") as program:
        async with aio.Session(workspace, client=shared, mcp_servers=servers, deciders="user") as s:
            done = await s.run(CODE)
        assert program.communicate(timeout=60)[0] == "once\n"
    assert done.status == "ok" and mark.exists()


@pytest.mark.parametrize(("deciders", "listed"), [("mcp", 0), ("user,mcp", 1), ("user", 1), ("host", 0)])
def test_only_the_places_that_are_named(
    shared: cellgate.Client, workspace: Path, servers: dict[str, Any], mark: Path, deciders: str, listed: int
) -> None:
    """A client without a place is one at a terminal."""

    def approve(event: cellgate.ApprovalRequest | cellgate.EgressRequest) -> bool:
        event.share()
        found = shared.approvals()
        assert (len(found["approvals"]), found["others"]) == (listed, 1 - listed)
        return True

    with cellgate.Session(workspace, client=shared, mcp_servers=servers, deciders=deciders) as s:
        assert s.run(CODE, approve=approve).status == "ok" and mark.exists()


def test_a_late_answer_of_the_program_is_no_error(
    shared: cellgate.Client, workspace: Path, servers: dict[str, Any], mark: Path
) -> None:
    def approve(event: cellgate.ApprovalRequest | cellgate.EgressRequest) -> bool:
        assert shared.approvals()["approvals"] == []
        event.share()
        (q,) = shared.approvals()["approvals"]
        shared.decide(q["id"], shared.approval(q["id"])["digest"], False)
        return True

    with cellgate.Session(workspace, client=shared, mcp_servers=servers, deciders="user") as s:
        assert s.run(CODE, approve=approve).status == "error"
    assert not mark.exists()


def test_the_default_is_this_program_alone(
    shared: cellgate.Client, workspace: Path, servers: dict[str, Any], mark: Path
) -> None:
    with cellgate.Session(workspace, client=shared, mcp_servers=servers) as s:
        assert s.run(CODE).status == "error"  # refused at once
        events = s.stream(CODE)
        asked = next(e for e in events if isinstance(e, cellgate.ApprovalRequest))
        assert shared.approvals() == {"approvals": [], "more": 0, "others": 1}
        asked.reject()
        events.close()
    with pytest.raises(cellgate.InvalidArgumentError, match="deciders"):
        cellgate.Session(workspace, client=shared, deciders="all")
    with cellgate.Client(private=True) as c, pytest.raises(cellgate.UnsupportedError, match="which is not used here"):
        cellgate.Session(workspace, client=c, deciders="user")
    assert not mark.exists()
    assert select.select([shared.approvals_fd()], [], [], 0)[0]
