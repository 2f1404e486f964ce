"""Files of src/ that call each other in a circle, read from the objects of the build: none but those that are listed."""

import json
import subprocess
from collections import defaultdict
from pathlib import Path

# A circle and why it is there. One that is gone has to go from here, too.
CIRCLES: dict[frozenset[str], str] = {}


def object_files(build: Path, repo: Path) -> dict[str, Path]:
    """Source file, relative to src/, to an object of it."""
    commands = json.loads((build / "compile_commands.json").read_text())
    paths = {(Path(c["directory"]) / c["file"]).resolve(): Path(c["directory"]) / c["output"] for c in commands}
    return {str(f.relative_to(repo / "src")): o for f, o in paths.items() if f.is_relative_to(repo / "src")}


def calls(objects: dict[str, Path]) -> dict[str, set[str]]:
    """Which file needs a symbol of which other one."""
    defined: dict[str, str] = {}
    needed: dict[str, set[str]] = defaultdict(set)
    names = {str(path): name for name, path in objects.items()}
    out = subprocess.run(["nm", "-A", *names], capture_output=True, text=True, check=True).stdout
    for line in out.splitlines():
        path, _, rest = line.partition(":")
        *_, kind, symbol = rest.split()
        if kind in "TDBR" and symbol != "main":
            defined[symbol] = names[path]
        elif kind == "U":
            needed[names[path]].add(symbol)
    return {name: {defined[s] for s in symbols if s in defined} - {name} for name, symbols in needed.items()}


def circles(graph: dict[str, set[str]]) -> set[frozenset[str]]:
    """Strongly connected components of more than one file (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = set()

    def visit(v: str) -> None:
        index[v] = low[v] = len(index)
        stack.append(v)
        for w in graph.get(v, ()):
            if w not in index:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in stack:
                low[v] = min(low[v], index[w])
        if low[v] == index[v]:
            at = stack.index(v)
            component = stack[at:]
            del stack[at:]
            if len(component) > 1:
                found.add(frozenset(component))

    for v in graph:
        if v not in index:
            visit(v)
    return found


def test_circles_are_those_that_are_listed(build_dir: Path, repo: Path) -> None:
    objects = object_files(build_dir, repo)
    assert len(objects) > 150
    found = circles(calls(objects))
    assert [sorted(c) for c in found - set(CIRCLES)] == []
    assert [sorted(c) for c in set(CIRCLES) - found] == []
