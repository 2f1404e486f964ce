"""How many lines of src/ each program links. Limits are raised by editing the table, with a reason in the commit."""

import subprocess
from pathlib import Path

import pytest
from layering.test_circles import object_files

# Upper limits, in lines of .c files, for the source files of which a program holds a function.
LIMITS = {
    "libexec/cellgate/cellgate-audit": 4_900,
    "bin/cellgate": 26_100,
    "libexec/cellgate/cellgate-cli": 53_200,
    "libexec/cellgate/cellgate-egress": 9_700,
    "libexec/cellgate/cellgate-kernel": 29_400,
    "libexec/cellgate/cellgate-mcp-http": 10_600,
    "libexec/cellgate/cellgate-post": 2_800,
    "libexec/cellgate/cellgate-run": 29_100,
    "libexec/cellgate/cellgate-search": 3_500,
    "libexec/cellgate/cellgate-supervisor": 31_400,
    "libexec/cellgate/cellgate-toolserver": 22_500,
    "lib/libcellgate.so": 11_700,
}


def functions(kinds: str, *paths: Path) -> dict[str, set[str]]:
    """Functions that objects or programs define, of the kinds of nm: "T" external, "t" static or hidden."""
    argv = ["nm", "--print-file-name", *map(str, paths)]
    out = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout
    found: dict[str, set[str]] = {str(p): set() for p in paths}
    for path, *_, kind, name in (line.replace(":", " ", 1).split() for line in out.splitlines()):
        if kind in kinds and name.startswith("cg_"):
            found[path].add(name)
    return found


@pytest.fixture(scope="module")
def external(build_dir: Path, repo: Path) -> dict[str, set[str]]:
    """The external functions of each source file."""
    objects = {o: source for source, o in object_files(build_dir, repo).items() if o.exists()}
    return {objects[Path(path)]: names for path, names in functions("T", *objects).items()}


@pytest.mark.parametrize("program", LIMITS)
def test_linked_lines(repo: Path, prefix: Path, external: dict[str, set[str]], program: str) -> None:
    (symbols,) = functions("Tt", prefix / program).values()
    files = [repo / "src" / source for source, names in external.items() if names & symbols]
    lines = {str(f.relative_to(repo)): len(f.read_text().splitlines()) for f in files}
    largest = sorted(lines.items(), key=lambda row: -row[1])[:10]
    assert len(lines) > 2  # the names are still found
    total = sum(lines.values())
    assert total <= LIMITS[program], f"{len(lines)} files; the largest: {largest}"
