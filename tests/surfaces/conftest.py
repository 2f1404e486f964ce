"""A server of `cellgate mcp serve --compat`, and the official SDK's client."""

from __future__ import annotations

import base64
import contextlib
import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import ElicitResult
from package_fixtures import package  # noqa: F401
from shared_supervisor import _account, _own_account, _own_state  # noqa: F401


class Server:
    """Calls tools, from any thread."""

    def __init__(self, portal: BlockingPortal, session: ClientSession) -> None:
        self._portal = portal
        self.session = session

    def raw(self, name: str, /, **arguments: Any) -> Any:
        async def call() -> Any:
            return await self.session.call_tool(name, arguments)

        return self._portal.call(call)

    def call(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        """What a tool returns: the same as text and as structured content; an error exactly where it says so."""
        answer = self.raw(name, **arguments)
        result: dict[str, Any] = json.loads(answer.content[0].text)
        assert result == answer.structured_content
        assert answer.is_error == (result.get("success") is False)
        return result

    def read(self, uri: str) -> bytes:
        return base64.b64decode(self._portal.call(self.session.read_resource, uri).contents[0].blob)

    def run(self, code: str, **arguments: Any) -> dict[str, Any]:
        return self.call("execute_code", code=code, **arguments)

    def many(self, codes: list[str]) -> list[dict[str, Any]]:
        """At the same time."""

        async def all_of_them() -> list[Any]:
            found: list[Any] = [None] * len(codes)

            async def one(i: int) -> None:
                found[i] = await self.session.call_tool("execute_code", {"code": codes[i]})

            async with anyio.create_task_group() as group:
                for i in range(len(codes)):
                    group.start_soon(one, i)
            return found

        return [json.loads(answer.content[0].text) for answer in self._portal.call(all_of_them)]


async def decide(answers: Callable[[str], bool], context: Any, params: Any) -> ElicitResult:
    return ElicitResult(action="accept", content={"decision": "approve" if answers(params.message) else "refuse"})


@contextlib.contextmanager
def connected(
    cellgate: Path,
    cwd: Path,
    *options: str | Path,
    surface: str = "context-forge",
    answers: Callable[[str], bool] | None = None,
    **env: str,
) -> Iterator[Server]:
    """A server with these options and variables. What its standard error has is in stderr.txt of its folder.

    `answers` decides about the questions that the client shows; without it the client shows none.
    """
    params = StdioServerParameters(
        command=str(cellgate),
        args=["mcp", "serve", "--compat", surface, *map(str, options)],
        env={**os.environ, **env},
        cwd=cwd,
    )
    with start_blocking_portal() as portal, (cwd / "stderr.txt").open("w") as log:
        with portal.wrap_async_context_manager(stdio_client(params, errlog=log)) as (read, write):
            callback = None if answers is None else partial(decide, answers)
            client = ClientSession(read, write, elicitation_callback=callback)
            with portal.wrap_async_context_manager(client) as session:
                portal.call(session.initialize)
                yield Server(portal, session)


@pytest.fixture(scope="session")
def connect() -> Callable[..., contextlib.AbstractContextManager[Server]]:
    """See connected()."""
    return connected


@pytest.fixture(scope="module")
def basic(cellgate: Path, tmp_path_factory: pytest.TempPathFactory, package: Path) -> Iterator[Server]:  # noqa: F811
    """Without variables: the profile basic."""
    with connected(cellgate, tmp_path_factory.mktemp("basic")) as server:
        yield server


@pytest.fixture
def serve(cellgate: Path, tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """serve(OPTION..., VARIABLE=VALUE...): another server."""
    with contextlib.ExitStack() as stack:
        yield lambda *options, **env: stack.enter_context(connected(cellgate, tmp_path, *options, **env))
