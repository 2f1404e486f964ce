"""A cell of 200 seconds by clients that give up a call much earlier: each gets its whole output."""

import re
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mcp_http.helpers import Server, Session

SECONDS = 200
CODE = f"import time\nfor i in range({SECONDS}):\n    print(i, flush=True)\n    time.sleep(1)"
WHOLE = "".join(f"{i}\n" for i in range(SECONDS))
HERE = Path(__file__).parent


def by_text(server: Server) -> str:
    """A client that reads nothing but the text of `content`, with the offsets that it names."""
    session = Session(server)
    reply, output = session.call("execute_ipython_cell", code=CODE, timeout=600), ""
    while True:
        text = "".join(b["text"] for b in reply.message["result"]["content"])
        more = re.search(r"\n?\[cellgate: .*execution_id: (cell-\d+).*from=(\d+)\) returns the rest", text, re.DOTALL)
        text = text[: more.start()] if more else text
        output += text if text != "(no output)" else ""
        if not more:
            return output
        reply = session.call("cell_result", **{"execution_id": more[1], "from": int(more[2])})


def by_structured(server: Server, has_header: bool) -> str:
    """Reads nothing but structuredContent. Without a header it loses Mcp-Session-Id, and names its session itself."""
    session = Session(server)
    data = session.call("execute_ipython_cell", code=CODE, timeout=600).message["result"]["structuredContent"]
    session.id = session.id if has_header else ""
    named = {"session_id": data["session_id"], "execution_id": data["execution_id"]}
    while data["status"] == "running":
        data = session.call("cell_result", **named).message["result"]["structuredContent"]
    return str(data["stdout"])


def test_each_client_gets_the_whole_result(
    serve: Callable[..., Server], npm_dir: Path, test_python: str, cellgate: Path, tmp_path: Path
) -> None:
    server = serve()
    fastmcp = npm_dir.parent / "servers-env/bin/python"
    sdk1 = str(npm_dir.parent / "servers-sdk1-env/bin/python")
    ts1 = npm_dir / "node_modules/@modelcontextprotocol/sdk/dist/esm/client"
    packages = npm_dir.parent / "test-npm/node_modules"
    ts2 = packages / "@modelcontextprotocol/client/dist/index.mjs"
    node = str(next(packages.glob("node-linux-*/bin/node")))

    def run(*argv: str | Path, after: tuple[str, ...] = ()) -> Callable[[], str]:
        words = [*map(str, argv), server.url, server.token, CODE, *after]
        env = {"PYTHONPATH": str(HERE.parent), "PATH": "/usr/bin:/bin"}

        def work() -> str:
            p = subprocess.run(words, capture_output=True, text=True, timeout=120 + 2 * SECONDS, env=env)
            return p.stdout if p.returncode == 0 else p.stderr

        return work

    def start(python: str, *options: str) -> Callable[[], str]:
        argv = [python, HERE / "patient_stdio.py", CODE, cellgate, "mcp", "serve", "--workspace", tmp_path, *options]

        def work() -> str:
            p = subprocess.run([*map(str, argv)], capture_output=True, text=True, timeout=120 + 2 * SECONDS)
            return p.stdout if p.returncode == 0 else p.stderr

        return work

    client = HERE / "patient_client.py"
    clients: dict[str, Callable[[], str]] = {
        **{f"Python 2.x, {s} s": run(test_python, client, after=(s,)) for s in ("60", "120")},
        **{f"Python 1.x, {s} s": run(sdk1, client, after=(s,)) for s in ("60", "120")},
        "TypeScript 1.x": run(node, HERE / "patient_client.mjs", ts1 / "index.js", ts1 / "streamableHttp.js"),
        "TypeScript 2.x": run(node, HERE / "patient_client.mjs", ts2, ts2),
        "FastMCP, 60 s": run(fastmcp, HERE / "patient_fastmcp.py", after=("60",)),
        "started like Claude Code's": start(test_python),
        "started like ipybox's": start(sdk1, "--plain-results"),
        "only the text": lambda: by_text(server),
        "only structuredContent": lambda: by_structured(server, True),
        "without the header": lambda: by_structured(server, False),
    }
    with ThreadPoolExecutor(len(clients)) as pool:
        results = dict(zip(clients, pool.map(lambda work: work(), clients.values()), strict=True))
    wrong = {name: text[-500:] for name, text in results.items() if text.rstrip() != WHOLE.rstrip()}
    assert not wrong, "\n".join(f"{n}: {t}" for n, t in wrong.items())
