"""`--webhook`: a URL learns that a question waits, and nothing about it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Server
from cli.test_decide_elsewhere import ELSEWHERE, GATHER, accept, listed, start
from processes import eventually
from shared_supervisor import Shared
from web import Posts, posts


@pytest.fixture(params=[204, 500])
def hook(request: pytest.FixtureRequest) -> Iterator[Posts]:
    with posts(request.param) as server:
        yield server


def test_what_has_waited_is_announced_once_and_without_names(shared: Shared, server: Server, hook: Posts) -> None:
    """One of three questions is decided at once, and not announced. A failure is reported once."""
    with start(shared, server, ELSEWHERE, "--webhook", hook.url, code=GATHER) as run:
        eventually(lambda: len(listed(shared)["approvals"]) == 3, 60)
        first, *others = [
            json.loads(shared("approvals", "show", q["id"], "--json").stdout) for q in listed(shared)["approvals"]
        ]
        accept(shared, first)
        eventually(lambda: len(hook.bodies) == 2, 60)
        for q in others:
            accept(shared, q)
        _, err = run.communicate(timeout=60)
        assert run.returncode == 0, err
    sent = [json.loads(b) for b in hook.bodies]
    assert sorted(s["id"] for s in sent) == sorted(q["id"] for q in others)
    assert all(set(s) == {"id", "kind", "session"} and s["kind"] == "tools/call" for s in sent)
    assert err.count("could not be announced") == (hook.status == 500)
    assert "secret-path" not in err and (hook.status == 204 or "status 500" in err)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--webhook", "http://example.org"], "needs --decide-elsewhere"),
        ([ELSEWHERE, "--webhook", "file"], "http or https"),
    ],
)
def test_wrong_options(shared: Shared, words: list[str], why: str) -> None:
    done = shared("run", *words, "-c", "1")
    assert done.returncode == 2 and why in done.stderr


def test_a_server_that_is_absent_delays_no_decision(shared: Shared, server: Server, tmp_path: Path) -> None:
    """Nobody listens at the address; what waits is decided, and the run ends."""
    with start(shared, server, ELSEWHERE, "--webhook", "http://127.0.0.1:1/") as run:
        eventually(lambda: len(listed(shared)["approvals"]) == 1, 60)
        (q,) = listed(shared)["approvals"]
        accept(shared, json.loads(shared("approvals", "show", q["id"], "--json").stdout))
        assert run.wait(60) == 0


@pytest.mark.parametrize(("private", "words"), [("1", []), ("", ["--log-level", "3"])])
def test_where_nothing_could_wait(run_cellgate: Any, private: str, words: list[str]) -> None:
    """Refused instead of watching a supervisor that has no questions of others."""
    r = run_cellgate(
        "run", *words, ELSEWHERE, "--webhook", "http://127.0.0.1:9/", "-c", "1", env={"CELLGATE_PRIVATE": private}
    )
    assert r.returncode == 2 and "--webhook needs the supervisor that your programs share" in r.stderr
