"""The notebook that every client runs, and its expected outputs.

A cell says which packages of the kernel's environment it needs; where they are not, it is left out. Run as a program it
writes the notebook:  python notebook.py FILE KERNEL [--packages pandas,matplotlib,...] [--no-tool]
"""

from __future__ import annotations

import argparse
import base64
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Output = dict[str, Any]
ANSI = re.compile(r"\x1b\[[0-9;]*m")


def text(value: Any) -> str:
    """A multi-line string of the notebook format, which may be a list of lines."""
    return "".join(value) if isinstance(value, list) else str(value)


def stream(outputs: list[Output], name: str = "stdout") -> str:
    return "".join(text(o["text"]) for o in outputs if o["output_type"] == "stream" and o["name"] == name)


def bundles(outputs: list[Output]) -> list[dict[str, Any]]:
    return [o["data"] for o in outputs if o["output_type"] in ("display_data", "execute_result")]


def says(wanted: str) -> Callable[[list[Output]], bool]:
    """The cell's standard output is this, no more."""
    return lambda outputs: stream(outputs).replace("\r\n", "\n") == wanted


def shows(mime: str, pattern: str) -> Callable[[list[Output]], bool]:
    """One of the cell's displays has this type, with something that matches in it."""

    def check(outputs: list[Output]) -> bool:
        for data in bundles(outputs):
            value = data.get(mime)
            if value is not None:
                found = json.dumps(value) if isinstance(value, dict) else text(value)
                if re.search(pattern, found, re.S):
                    return True
        return False

    return check


def is_png(outputs: list[Output]) -> bool:
    """A picture, and of more than a few pixels."""
    for data in bundles(outputs):
        if "image/png" in data:
            png = base64.b64decode(text(data["image/png"]))
            return png[:8] == b"\x89PNG\r\n\x1a\n" and int.from_bytes(png[16:20], "big") > 200
    return False


def fails(ename: str, evalue: str) -> Callable[[list[Output]], bool]:
    """The cell's only output is this error, with a traceback that names the line."""

    def check(outputs: list[Output]) -> bool:
        if [o["output_type"] for o in outputs] != ["error"]:
            return False
        error = outputs[0]
        traceback = ANSI.sub("", "\n".join(error["traceback"]))
        return error["ename"] == ename and error["evalue"] == evalue and f"raise {ename}" in traceback

    return check


def everything(*checks: Callable[[list[Output]], bool]) -> Callable[[list[Output]], bool]:
    return lambda outputs: all(check(outputs) for check in checks)


@dataclass(frozen=True)
class Cell:
    name: str
    source: str
    check: Callable[[list[Output]], bool]
    needs: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    stdin: bool = False  # needs a person: left out where the client has none
    ours: bool = False  # what ipykernel cannot: call the MCP server `echo`, asyncio.run in a cell


WIDGET = "application/vnd.jupyter.widget-view+json"

CELLS = (
    Cell("parameters", "times = 2", says(""), tags=("parameters",)),
    Cell(
        "text",
        "import sys\nprint('out ' * times)\nprint('err', file=sys.stderr)",
        everything(says("out out \n"), lambda o: stream(o, "stderr") == "err\n"),
    ),
    Cell("value", "6 * 7", shows("text/plain", "^42$")),
    Cell("state", "_ + 1", shows("text/plain", "^43$")),
    Cell("subprocess", "!echo a shell says this", says("a shell says this\n")),
    Cell("html", "from IPython.display import *\nHTML('<b id=\"bold\">bold</b>')", shows("text/html", "^<b id=")),
    Cell("latex", "Math(r'\\frac{1}{2}')", shows("text/latex", r"\\frac\{1\}\{2\}")),
    Cell("markdown", "Markdown('a **strong** word')", shows("text/markdown", r"\*\*strong\*\*")),
    Cell(
        "svg",
        'SVG(\'<svg xmlns="http://www.w3.org/2000/svg" width="40" height="40"><circle cx="20" cy="20" r="15"/></svg>\')',
        shows("image/svg+xml", "<circle"),
    ),
    Cell("json", "JSON({'a': [1, 2.5, None]})", shows("application/json", r'"a": \[1, 2.5, null\]')),
    Cell("javascript", "Javascript('window.cellgate_seen = 1')", shows("application/javascript", "cellgate_seen")),
    Cell(
        "update",
        "handle = display(HTML('first'), display_id=True)\nhandle.update(HTML('second'))",
        everything(shows("text/html", "^second$"), lambda o: len(o) == 1),
    ),
    Cell(
        "clear",
        "print('gone')\nclear_output(wait=True)\nprint('stays')",
        says("stays\n"),
    ),
    Cell("error", "raise ValueError('meant')", fails("ValueError", "meant"), tags=("raises-exception",)),
    Cell("after the error", "'still here'", shows("text/plain", "still here")),
    Cell(
        "await",
        "import asyncio\nawait asyncio.sleep(0.01)\nprint(sum(await asyncio.gather(asyncio.sleep(0.01, 1), asyncio.sleep(0.01, 2))))",
        says("3\n"),
    ),
    Cell("asyncio.run", "asyncio.run(asyncio.sleep(0.01, 'run'))", shows("text/plain", "'run'"), ours=True),
    Cell(
        "thread",
        "import threading\nt = threading.Thread(target=print, args=('from a thread',))\nt.start()\nt.join()",
        says("from a thread\n"),
    ),
    Cell("magic", "%%capture caught\nprint('caught')", says("")),
    Cell("captured", "caught.stdout", shows("text/plain", "caught")),
    Cell("help", "%%time\npass", lambda o: "Wall time" in stream(o) or "CPU times" in stream(o)),
    Cell("input", "name = input('who? ')\nprint('hello', name)", says("hello Ada\n"), stdin=True),
    Cell(
        "tool",
        "from mcptools.echo import echo\nprint(echo.run(text='approved'))",
        says("approved\n"),
        ours=True,
    ),
    Cell(
        "refused tool",
        "from mcptools.echo import danger\ntry:\n    danger.run(text='harm')\nexcept Exception as e:\n    print(type(e).__name__)",
        says("RejectedError\n"),
        ours=True,
    ),
    Cell(
        "table",
        "import pandas as pd\npd.DataFrame({'city': ['Oslo', 'Lima'], 'people': [709_000, 10_092_000]})",
        everything(shows("text/html", "<table.*<td>Lima</td>.*10092000"), shows("text/plain", "Oslo")),
        needs=("pandas",),
    ),
    Cell(
        "plot",
        "%matplotlib inline\nimport matplotlib.pyplot as plt\nfig, ax = plt.subplots()\nax.plot([1, 4, 2, 3])\nax.set_title('a plot');",
        is_png,
        needs=("matplotlib",),
    ),
    Cell(
        "two plots",
        "plt.plot([1, 2]); plt.show()\nplt.plot([2, 1]); plt.show()",
        lambda o: sum("image/png" in b for b in bundles(o)) == 2,
        needs=("matplotlib",),
    ),
    Cell(
        "vector plot",
        "%config InlineBackend.figure_formats = ['svg']\nplt.plot([1, 2]);",
        shows("image/svg+xml", "<svg"),
        needs=("matplotlib",),
    ),
    Cell(
        "slider",
        "import ipywidgets as w\nslider = w.IntSlider(3, 0, 10, description='amount')\nlabel = w.Label('amount is 3')\n"
        "slider.observe(lambda change: setattr(label, 'value', f'amount is {change.new}'), 'value')\nw.VBox([slider, label])",
        shows(WIDGET, '"model_id"'),
        needs=("ipywidgets",),
    ),
    Cell(
        "interact",
        "@w.interact(n=(0, 5))\ndef square(n=2):\n    print('square', n * n)",
        shows(WIDGET, '"model_id"'),
        needs=("ipywidgets",),
    ),
    Cell(
        "output widget",
        "box = w.Output()\nwith box:\n    print('inside the box')\nbox",
        everything(shows(WIDGET, '"model_id"'), says("")),
        needs=("ipywidgets",),
    ),
    Cell(
        "progress",
        "from tqdm.auto import tqdm\nfor i in tqdm(range(5), desc='steps'):\n    pass",
        shows(WIDGET, '"model_id"'),
        needs=("tqdm", "ipywidgets"),
    ),
    Cell(
        "plotly",
        "import plotly.graph_objects as go\ngo.Figure(go.Bar(y=[2, 1, 3])).show(renderer='plotly_mimetype')",
        shows("application/vnd.plotly.v1+json", '"bar"'),
        needs=("plotly",),
    ),
    Cell(
        "altair",
        # Its page loads vega from a network that is not here: there is no picture to see.
        "import altair as alt\nalt.Chart(alt.Data(values=[{'a': 'A', 'b': 28}])).mark_bar().encode(x='a:N', y='b:Q')",
        shows("text/html", "vega"),
        needs=("altair",),
    ),
    Cell(
        "rich",
        "import rich\nrich.print('[bold]rich[/bold] text')",
        lambda o: bool(shows("text/html", "rich</span> text")(o) or "rich text" in ANSI.sub("", stream(o))),
        needs=("rich",),
    ),
)


def cells(packages: Iterable[str] = (), ours: bool = True, stdin: bool = False) -> list[Cell]:
    have = set(packages)
    return [c for c in CELLS if have.issuperset(c.needs) and (ours or not c.ours) and (stdin or not c.stdin)]


def build(kernel: str, packages: Iterable[str] = (), ours: bool = True, stdin: bool = False) -> dict[str, Any]:
    """The notebook, not run yet, as a JSON value of format 4.5."""
    return {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {"kernelspec": {"name": kernel, "display_name": kernel, "language": "python"}},
        "cells": [
            {
                "id": "title",
                "cell_type": "markdown",
                "metadata": {},
                "source": "# What a kernel must do\n\n$e^{i\\pi}=-1$",
            },
            *(
                {
                    "id": re.sub("[^a-z]+", "-", c.name),
                    "cell_type": "code",
                    "metadata": {"tags": list(c.tags)} if c.tags else {},
                    "source": c.source,
                    "outputs": [],
                    "execution_count": None,
                }
                for c in cells(packages, ours, stdin)
            ),
        ],
    }


def problems(
    executed: dict[str, Any], packages: Iterable[str] = (), ours: bool = True, stdin: bool = False
) -> list[str]:
    """Return the differences from the expected outputs of an executed notebook, one text for each cell."""
    wrong = []
    by_id = {c["id"]: c for c in executed["cells"] if c["cell_type"] == "code"}
    for number, cell in enumerate(cells(packages, ours, stdin), 1):
        found = by_id.get(re.sub("[^a-z]+", "-", cell.name))
        if found is None:
            wrong.append(f"{cell.name}: the cell is gone")
        elif not cell.check(found["outputs"]):
            wrong.append(f"{cell.name}: {json.dumps(found['outputs'])[:1500]}")
        elif found["execution_count"] != number:
            wrong.append(f"{cell.name}: number {found['execution_count']}, not {number}")
    return wrong


def main() -> None:
    ap = argparse.ArgumentParser(description="Writes the notebook that the tests' clients run.")
    ap.add_argument("file", type=Path)
    ap.add_argument("kernel", help="name of the kernelspec")
    ap.add_argument(
        "--packages", default="", help="what the kernel has, of: pandas,matplotlib,ipywidgets,tqdm,plotly,altair,rich"
    )
    ap.add_argument("--any-kernel", action="store_true", help="without what ipykernel cannot")
    opt = ap.parse_args()
    opt.file.write_text(json.dumps(build(opt.kernel, opt.packages.split(","), not opt.any_kernel), indent=1))


if __name__ == "__main__":
    main()
