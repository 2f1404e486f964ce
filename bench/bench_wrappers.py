"""Measures the modules of MCP tools in a sandboxed kernel, by turns with Python's own loader in one run.

An MCP server of its own lists the tools: those of the files given, or of tests/codegen/data, each as often as needed.
Tokens are a quarter of the characters: exact tokenizers need their tables from the network.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from itertools import cycle, islice
from pathlib import Path

import report

SERVER = """
import json, sys
tools = json.load(open(sys.argv[1]))
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        info = {"name": "listed", "version": "1"}
        result = {
            "initialize": lambda: {
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": info,
            },
            "tools/list": lambda: {"tools": tools},
        }.get(message["method"], dict)()
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""
CELL = """
import gc, json, pydoc, statistics, sys, time
from importlib import import_module
import mcptools
from cellgate_tools import _data, _index, _package

names = [f"{s}.{t}" for s in mcptools.servers() for t in mcptools.tools(s)][:COUNT]

def imports(ours):
    for name in [n for n in sys.modules if n.startswith("mcptools.")]:
        del sys.modules[name]
    for server in mcptools.servers():
        vars(mcptools).pop(server, None)
    if not ours:
        sys.meta_path.remove(_package._Finder)
    gc.collect()
    start = time.perf_counter()
    for name in names:
        import_module("mcptools." + name)
    took = time.perf_counter() - start
    if not ours:
        sys.meta_path.insert(0, _package._Finder)
    return took * 1e3

def timed(call, *args):
    start = time.perf_counter()
    call(*args)
    return (time.perf_counter() - start) * 1e3

def first_search():
    _index._KEPT.clear()
    _data._LOADED.clear()
    return timed(mcptools.search, "read a file")

out = {"tools": len(names), "first search": statistics.median(first_search() for _ in range(ROUNDS))}
turns = [(imports(False), imports(True)) for _ in range(ROUNDS)]
out["Python's loader"] = statistics.median(a for a, _ in turns)
out["cellgate's"] = statistics.median(b for _, b in turns)
words = ["create an issue", "read a text file", "take a screenshot", "list everything", "delete"] * 20
out["search"] = statistics.median(timed(mcptools.search, w) for w in words)
def size(texts):
    texts = list(texts)
    return sum(map(len, texts)) / 4 / len(names)
modules = [import_module("mcptools." + n) for n in names]
out["names"] = size(repr(mcptools.tools(s)) for s in mcptools.servers())
out["described"] = size(repr(mcptools.tools(s, describe=True)) for s in mcptools.servers())
out["signature"] = size(map(mcptools.signature, names))
out["help"] = size(map(pydoc.plaintext.document, modules))
out["text"] = size(open(m.__file__).read() for m in modules)
print("FIGURES", json.dumps(out))
"""


def tool_lists(files: list[Path], count: int) -> list[list[dict[str, object]]]:
    """The tools of the files, 25 a server, again and again until there are enough."""
    files = files or sorted((report.REPO / "tests/codegen/data").glob("*.json"))
    lists = [json.loads(f.read_text()) for f in files]
    tools = [t for found in lists for t in (found if isinstance(found, list) else found["tools"])]
    many = [{**t, "name": f"{t['name']}_{i}"} for i, t in enumerate(islice(cycle(tools), count))]
    many[: len(tools)] = tools[:count]
    return [many[i : i + 25] for i in range(0, count, 25)]


def measure(cellgate: Path, lists: list[list[dict[str, object]]], rounds: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        folder, work = Path(name), Path(name, "work")
        work.mkdir()
        (folder / "server.py").write_text(SERVER)
        servers = {}
        for i, tools in enumerate(lists):
            (folder / f"{i}.json").write_text(json.dumps(tools))
            args = [str(folder / "server.py"), str(folder / f"{i}.json")]
            servers[f"s{i}"] = {"command": "/usr/bin/python3", "args": args}
        (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
        cell = CELL.replace("COUNT", str(sum(map(len, lists)))).replace("ROUNDS", str(rounds))
        argv = [cellgate, "run", "--workspace", work, "--mcp", folder / "mcp.json", "-c", cell]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=600)
    for line in done.stdout.splitlines():
        if line.startswith("FIGURES "):
            figures: dict[str, float] = json.loads(line[8:])
            return figures
    raise SystemExit(f"cellgate run failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("files", nargs="*", type=Path, metavar="FILE", help="tool lists: JSON, an answer to tools/list")
    ap.add_argument("--cellgate", type=Path, default=report.REPO / "build/bench/root/bin/cellgate", help="the program")
    ap.add_argument("--tools", type=int, default=200, help="number of tools (default 200)")
    ap.add_argument("--rounds", type=int, default=5, help="turns of each measurement (default 5)")
    opt = ap.parse_args()
    f = measure(opt.cellgate, tool_lists(opt.files, opt.tools), opt.rounds)
    print(f"{f['tools']:.0f} tools, median of {opt.rounds} turns")
    for name, unit in (
        *(("Python's loader", "ms for importing all"), ("cellgate's", "ms")),
        *(("first search", "ms"), ("search", "ms")),
        *((n, "tokens a tool") for n in ("names", "described", "signature", "help", "text")),
    ):
        print(f"{name:18}{f[name]:9.2f} {unit}")
    targets = report.Targets()
    targets.most("importing 200 modules, ms", f["cellgate's"] * 200 / f["tools"], 200)
    targets.most("search, ms", f["search"], 10)
    for level, tokens in (("names", 8.0), ("described", 15.0), ("signature", 40.0)):
        targets.most(f"{level}, tokens a tool", f[level], tokens)
    targets.most("help() by the module's text", f["help"] / f["text"], 1.1)
    print(*targets.lines(40), sep="\n")
    return 0 if all(kept for *_, kept in targets) else 1


if __name__ == "__main__":
    sys.exit(main())
