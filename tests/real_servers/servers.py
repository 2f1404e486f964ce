"""The MCP servers of test_real_servers.py, one row a server. To add a server, add a row."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

# In commands, arguments and variables: {folder} a folder of this run, {port} a free port, {web} the address of a local web
# server, {npm} and {test_npm} folders of npm packages, {servers} and {sdk1} bin folders of Python environments, {here} this
# folder, {node} a Node 22, {python} the tests' interpreter.
PYTHON = "{servers}/python"
TYPESCRIPT = ["{node}", "{here}/typescript_sdk.mjs", "{test_npm}"]
RECORDED = ["{python}", "{here}/recorder.py", "{folder}/record"]
CHROMIUM = "/usr/bin/chromium"
PLAYWRIGHT = [
    *["{node}", "{test_npm}/@playwright/mcp/cli.js", "--headless", "--no-sandbox", "--executable-path", CHROMIUM],
    *["--user-data-dir", "{folder}/profile", "--output-dir", "{folder}/out"],
    *["--file-paths", "absolute"],
]
LISTEN = ["--host", "127.0.0.1", "--port", "{port}", "--allowed-hosts", "*"]
# Chromium reports every request that it cannot send through a proxy of the environment.
DIRECT = {"http_proxy": "", "https_proxy": ""}
DATES = {"GIT_AUTHOR_DATE": "1767225600 +0000", "GIT_COMMITTER_DATE": "1767225600 +0000"}
TEXT = "Gr\u00fc\u00dfe\u2028\U0001f600"


@dataclass(frozen=True)
class Server:
    name: str
    command: list[str]
    """Over stdio."""
    calls: list[tuple[str, dict[str, Any]]]
    """Tools and their arguments. The first one changes something: a file in {folder}, or it sends a request to {web}."""
    http: dict[str, list[str]] = field(default_factory=dict)
    """For each path of a URL the command that serves it."""
    eras: tuple[str, ...] = ("auto",)
    env: dict[str, str] = field(default_factory=dict)
    prepare: str = ""
    """A command of the shell that runs in {folder} first."""
    errors: tuple[int, ...] = ()
    """Which of the calls the server answers with an error."""
    varies: str = ""
    """A pattern of what differs from one run to the next in a result."""


SERVERS = [
    Server(
        "python-sdk",
        [PYTHON, "{here}/python_sdk.py", "{folder}"],
        [("note", {"text": TEXT, "times": 3}), ("draw", {"size": 100_000}), ("fail", {"why": TEXT})],
        {"/mcp": [PYTHON, "{here}/python_sdk.py", "{folder}", "{port}"]},
        eras=("legacy", "modern"),
        errors=(2,),
    ),
    Server(
        "fastmcp",
        [PYTHON, "{here}/fast.py", "{folder}"],
        [("note", {"entry": {"text": TEXT, "tags": ["a"]}}), ("draw", {"size": 100_000}), ("fail", {"why": TEXT})],
        {"/mcp": [PYTHON, "{here}/fast.py", "{folder}", "{port}"]},
        eras=("legacy", "modern"),
        errors=(2,),
    ),
    Server(
        "typescript-sdk",
        [*TYPESCRIPT, "{folder}"],
        [("note", {"text": TEXT, "times": 3}), ("draw", {"size": 100_000}), ("fail", {"why": TEXT})],
        {"/mcp": [*TYPESCRIPT, "{folder}", "{port}"]},
        eras=("legacy", "modern"),
        errors=(2,),
    ),
    Server(
        "everything",
        ["{node}", "{npm}/@modelcontextprotocol/server-everything/dist/index.js", "stdio"],
        [
            ("gzip-file-as-resource", {"name": "a.gz", "data": "{web}/a", "outputType": "resource"}),
            ("get-structured-content", {"location": "Chicago"}),
            ("get-annotated-message", {"messageType": "error", "includeImage": True}),
            ("get-resource-links", {"count": 3}),
            ("get-sum", {"a": 1e16, "b": -0.5}),
            ("trigger-long-running-operation", {"duration": 0.2, "steps": 4}),
        ],
        {
            "/mcp": ["{node}", "{npm}/@modelcontextprotocol/server-everything/dist/index.js", "streamableHttp"],
            "/sse": ["{node}", "{npm}/@modelcontextprotocol/server-everything/dist/index.js", "sse"],
        },
        env={"PORT": "{port}"},
    ),
    Server(
        "filesystem",
        ["{node}", "{npm}/@modelcontextprotocol/server-filesystem/dist/index.js", "{folder}"],
        [
            ("write_file", {"path": "{folder}/a.txt", "content": TEXT}),
            ("read_text_file", {"path": "{folder}/a.txt"}),
            ("read_text_file", {"path": "/etc/shadow"}),
            ("directory_tree", {"path": "{folder}"}),
        ],
        errors=(2,),
    ),
    Server(
        "memory",
        ["{node}", "{npm}/@modelcontextprotocol/server-memory/dist/index.js"],
        [
            ("create_entities", {"entities": [{"name": "cell", "entityType": "thing", "observations": [TEXT]}]}),
            ("search_nodes", {"query": "cell"}),
        ],
        env={"MEMORY_FILE_PATH": "{folder}/memory.json"},
    ),
    Server(
        "sequential-thinking",
        [*RECORDED, "{node}", "{test_npm}/@modelcontextprotocol/server-sequential-thinking/dist/index.js"],
        [
            (
                "sequentialthinking",
                {"thought": TEXT, "nextThoughtNeeded": True, "thoughtNumber": 1, "totalThoughts": 2},
            )
        ],
    ),
    Server(
        "playwright",
        PLAYWRIGHT,
        [
            ("browser_navigate", {"url": "{web}/a"}),
            ("browser_snapshot", {}),
            ("browser_evaluate", {"function": "() => document.body.innerText"}),
            ("browser_take_screenshot", {"type": "png", "scale": "css"}),
        ],
        {"/mcp": [*PLAYWRIGHT, *LISTEN], "/sse": [*PLAYWRIGHT, *LISTEN]},
        env=DIRECT,
        varies=r"\d{4}-\d\d-\d\dT[\w-]+Z",
    ),
    Server(
        "git",
        ["{servers}/mcp-server-git", "--repository", "{folder}"],
        [
            ("git_commit", {"repo_path": "{folder}", "message": TEXT}),
            ("git_log", {"repo_path": "{folder}", "max_count": 3}),
            ("git_show", {"repo_path": "{folder}", "revision": "HEAD"}),
        ],
        env=DATES,
        prepare="git init -q -b main . && git config user.name a && git config user.email a@b && echo a > a && git add a",
    ),
    Server(
        "time",
        [*RECORDED, "{servers}/mcp-server-time", "--local-timezone", "Europe/Berlin"],
        [
            (
                "convert_time",
                {"source_timezone": "Europe/Berlin", "time": "12:30", "target_timezone": "Asia/Kathmandu"},
            ),
            ("get_current_time", {"timezone": "UTC"}),
            ("get_current_time", {"timezone": "Moon/Crater"}),
        ],
        errors=(2,),
        varies=r"\d{4}-\d\d-\d\dT[\d:]+|Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday",
    ),
    Server(
        "fetch",
        ["{servers}/mcp-server-fetch", "--ignore-robots-txt", "--allow-private-ips"],
        [("fetch", {"url": "{web}/a"}), ("fetch", {"url": "{web}/a", "raw": True, "max_length": 5})],
    ),
    Server(
        "sqlite",
        ["{sdk1}/mcp-server-sqlite", "--db-path", "{folder}/a.db"],
        [
            ("create_table", {"query": "CREATE TABLE t (name TEXT, n INTEGER)"}),
            ("write_query", {"query": f"INSERT INTO t VALUES ('{TEXT}', 9007199254740993)"}),
            ("read_query", {"query": "SELECT * FROM t"}),
            ("describe_table", {"table_name": "t"}),
            ("read_query", {"query": "DROP TABLE t"}),
        ],
    ),
]
