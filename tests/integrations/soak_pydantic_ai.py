"""pydantic-ai: its own tests of workspaces."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite


class TestWorkspace(WorkspaceBackendSuite):
    @pytest.fixture
    def make(self, client: Any, tmp_path: Path) -> Callable[..., Any]:
        from cellgate.integrations.pydantic_ai import CellgateWorkspace

        def make(**options: Any) -> Any:
            return CellgateWorkspace(tmp_path, client=client, **options)

        return make

    @pytest.fixture
    async def backend(self, anyio_backend: str, make: Callable[..., Any]) -> AsyncIterator[Any]:
        backend = make()
        yield backend
        if backend.ref:
            await backend.delete(backend.ref)

    @pytest.fixture
    def fresh_backend(self, make: Callable[..., Any]) -> Callable[[], Any]:
        return make

    @pytest.fixture
    def attach_backend(self, make: Callable[..., Any]) -> Callable[[Any], Any]:
        return lambda ref: make(ref=ref)

    @pytest.fixture
    def destroy_environment(self) -> Callable[[Any], Awaitable[None]]:
        async def destroy(backend: Any) -> None:
            await backend.delete(backend.ref)

        return destroy
