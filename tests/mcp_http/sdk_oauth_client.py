"""The official Python SDK with its OAuth client, which finds the issuer and gets a token. Argument: URL. Prints JSON."""

import json
import sys
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
from mcp import ClientSession
from mcp.client import streamable_http
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.shared.auth import OAuthClientMetadata


class Storage:
    tokens: Any = None
    info: Any = None

    async def get_tokens(self) -> Any:
        return self.tokens

    async def set_tokens(self, tokens: Any) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> Any:
        return self.info

    async def set_client_info(self, info: Any) -> None:
        self.info = info


async def main(url: str) -> None:
    back: dict[str, list[str]] = {}

    async def redirect(place: str) -> None:
        """The browser."""
        async with streamable_http.httpx2.AsyncClient() as client:
            response = await client.get(place)
        back.update(parse_qs(urlsplit(response.headers["Location"]).query))

    async def callback() -> AuthorizationCodeResult:
        return AuthorizationCodeResult(code=back["code"][0], state=back["state"][0])

    metadata = OAuthClientMetadata(client_name="test", redirect_uris=["http://127.0.0.1:1/callback"])
    provider = OAuthClientProvider(url, metadata, Storage(), redirect, callback)
    client = streamable_http.httpx2.AsyncClient(auth=provider)
    async with streamable_http.streamable_http_client(url, http_client=client) as streams:
        async with ClientSession(streams[0], streams[1]) as session:
            await session.initialize()
            result = await session.call_tool("execute_ipython_cell", {"code": "6 * 7"})
    print(json.dumps(result.content[0].text))


anyio.run(main, *sys.argv[1:])
