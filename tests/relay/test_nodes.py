"""Nodes that lie, hang or speak something else: nothing runs that was not shown, and every wait ends."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from relay.node_messages import MESSAGES


def test_what_start_files_print_is_skipped(package: Any, node: Callable[..., list[str]], tmp_path: Path) -> None:
    import cellgate

    with cellgate.Client(connect=node("motd")) as client:
        assert cellgate.Session(tmp_path, client=client).run("1 + 1").value == "2"


def test_a_node_that_does_not_answer(package: Any, node: Callable[..., list[str]]) -> None:
    import cellgate

    with pytest.raises(cellgate.TimedOutError, match="no relay of cellgate answered within 500 ms"):
        cellgate.Client(connect=node("silent"), timeout=0.5)


def test_the_host_is_asked_about_what_would_run(package: Any, node: Callable[..., list[str]], tmp_path: Path) -> None:
    """The node changes the arguments of the call: the changed ones are those that are shown."""
    import cellgate

    called: list[str] = []
    seen: list[Any] = []
    with cellgate.Client(connect=node("other-arguments")) as client:
        s = cellgate.Session(tmp_path, client=client)

        def act(text: str) -> None:
            called.append(text)

        s.functions({"act": act}, ask=True)
        code = "from mcptools.host import act\nact.run(text='SA' + 'FE')"
        result = s.run(code, approve=lambda request: seen.append(request.arguments) or False)
        assert result.refused and seen == [{"text": "EVIL"}] and not called
        assert s.run(code, approve=lambda request: request.arguments == {"text": "EVIL"}).ok and called == ["EVIL"]


@pytest.mark.parametrize("name", MESSAGES)
def test_messages_that_a_node_must_not_send(
    package: Any, node: Callable[..., list[str]], tmp_path: Path, name: str
) -> None:
    """The connection ends, or the message changes nothing; no function of the host runs."""
    import cellgate

    m = MESSAGES[name]
    called: list[int] = []
    with cellgate.Client(connect=node("inject", *m.words())) as c:
        s = cellgate.Session(tmp_path, client=c)
        s.functions({"act": lambda: called.append(1)}, ask=True)
        with contextlib.suppress(cellgate.ClosedError):  # after a message that ends it, or takes its session
            for cell in ("print('inject now')", "1"):
                s.run(cell, approve=lambda _: False, timeout=20)
        if m.why:
            with pytest.raises(cellgate.CellgateError, match=m.why):
                c.status()
        else:
            assert c.status()["pid"] > 0
        assert not called
