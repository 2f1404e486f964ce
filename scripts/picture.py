"""Draws docs/question.svg, the picture in README.md: a terminal in which a cell asks for a tool call.

  scripts/picture.py [--prefix DIR]

Runs the installed cellgate (default: build/test/root) with the MCP server of the demonstration and draws what the
terminal showed. tests/docs/test_picture.py draws it again and compares all but the digits of the accepting keys.
"""

from __future__ import annotations

import argparse
import html
import json
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO / "tests"))

from docs_readme import PROGRESS, Shell  # noqa: E402

PICTURE = REPO / "docs/question.svg"
REPORTS = Path("/tmp/reports")
PROGRAM = f"""\
from mcptools.filesystem import write_file

total = sum(range(101))
write_file.run(path="{REPORTS}/total.txt", content=f"total: {{total}}")   # stops here
print("it goes on, with its variables:", total)
"""
RUN = "cellgate run --mcp servers.json report.py"
DIGITS = re.compile(r"\b([ysa])\d{3}\b")
WIDTH, LINE, CHARACTER = 760, 19, 7.83
BACKGROUND, PLAIN, COMMAND, ASKS, CODE = "#101418", "#d5dbe1", "#7ee787", "#ffd166", "#9fb3c8"


def record(prefix: Path, npm: Path, slowness: float = 1) -> list[tuple[str, str]]:
    """Runs it. Returns the lines of the terminal with their colours."""
    REPORTS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        home, folder = Path(name) / "home", Path(name) / "work"
        home.mkdir()
        folder.mkdir()
        (folder / "report.py").write_text(PROGRAM)
        server = {"command": str(npm / "node_modules/.bin/mcp-server-filesystem"), "args": [str(REPORTS)]}
        (folder / "servers.json").write_text(json.dumps({"mcpServers": {"filesystem": server}}))
        env = {k: os.environ[k] for k in ("LD_LIBRARY_PATH", "CG_SANITIZED") if k in os.environ}
        env |= {"HOME": str(home), "PATH": f"{prefix}/bin:/usr/bin:/bin", "TERM": "xterm"}
        env |= {"LC_ALL": "C.UTF-8", "CELLGATE_PRIVATE": "1"}
        shell = Shell(["bash", "--norc", "--noprofile", "--noediting", "-i"], env, folder)
        try:
            # The first run accepts the server's tools, which the picture does not show.
            accept = "cellgate run --mcp servers.json --approve all -c 'import mcptools.filesystem'"
            shell.run(accept, (), 60 * slowness)
            status, shown = shell.run(RUN, ("y000",), 60 * slowness)
        finally:
            shell.close()
    shutil.rmtree(REPORTS)
    shown = [line.rstrip() for line in shown if not PROGRESS.match(line)]
    if status != 0:
        raise RuntimeError("\n".join(shown))
    digits = DIGITS.search("\n".join(shown))
    shown = [line.replace(": y000", f": {digits[0]}") if digits else line for line in shown]
    lines = [("$ cat report.py", COMMAND)]
    lines += [(line, CODE) for line in PROGRAM.splitlines()]
    lines += [(f"$ {RUN}", COMMAND)]
    lines += [(line, ASKS if line.startswith(("[cellgate]", " ")) else PLAIN) for line in shown]
    return [(line, colour) for line, colour in lines if line or colour == CODE]


def draw(lines: list[tuple[str, str]]) -> str:
    height = LINE * len(lines) + 56
    svg = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        ' font-family="ui-monospace, Menlo, Consolas, \'DejaVu Sans Mono\', monospace" font-size="13">',
        "<title>A cell asks for a tool call; y and three digits accept it; the cell goes on</title>",
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="{BACKGROUND}"/>',
    ]
    for x, colour in ((20, "#ff5f56"), (38, "#ffbd2e"), (56, "#27c93f")):
        svg.append(f'<circle cx="{x}" cy="18" r="5.5" fill="{colour}"/>')
    for i, (line, colour) in enumerate(lines):
        width = round(len(line) * CHARACTER)
        length = f' textLength="{width}" lengthAdjust="spacingAndGlyphs"' if line else ""
        text = html.escape(line, quote=False)
        svg.append(f'<text x="16" y="{52 + LINE * i}" fill="{colour}" xml:space="preserve"{length}>{text}</text>')
    return "\n".join([*svg, "</svg>", ""])


def masked(svg: str) -> str:
    """Without the digits that are drawn for each question."""
    return DIGITS.sub(r"\1000", svg)


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--prefix", type=Path, default=REPO / "build/test/root", help="the installed cellgate")
    opt = ap.parse_args()
    PICTURE.write_text(draw(record(opt.prefix, REPO / ".deps/npm")))
    print(PICTURE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
