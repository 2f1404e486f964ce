"""Programs that people open notebooks with, each doing the whole notebook. Run by scripts/soak in the clients' environment.

JupyterLab is in soak_jupyterlab.py.
"""

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pexpect
import pytest
from clients import notebook
from clients.support import Jupyter, python_with

pytestmark = pytest.mark.timeout(300)

HERE = Path(__file__).resolve().parent


def written(jupyter: Jupyter, spec: str, packages: set[str], ours: bool) -> Path:
    path = jupyter.work / "notebook.ipynb"
    path.write_text(json.dumps(notebook.build(spec, packages, ours)))
    return path


def test_nbconvert(jupyter: Jupyter, spec: str, packages: set[str], ours: bool) -> None:
    source = written(jupyter, spec, packages, ours)
    base = [python_with("nbconvert"), "-m", "nbconvert", "--execute", "--ExecutePreprocessor.timeout=60"]
    jupyter.run(*base, "--to", "notebook", "--output", "converted.ipynb", source, limit_s=180)
    executed = json.loads((jupyter.work / "converted.ipynb").read_text())
    assert notebook.problems(executed, packages, ours) == []
    jupyter.run(*base, "--to", "html", "--output", "converted.html", source, limit_s=180)
    page = (jupyter.work / "converted.html").read_text()
    assert 'id="bold"' in page
    if "matplotlib" in packages:
        assert "data:image/png;base64," in page
    if "ipywidgets" in packages:
        assert "application/vnd.jupyter.widget-state+json" in page
        assert "IntSliderModel" in page


def test_papermill(jupyter: Jupyter, spec: str, packages: set[str], ours: bool) -> None:
    """With a parameter, which papermill puts into a cell of its own; and without the cell that is meant to fail."""
    source = written(jupyter, spec, packages, ours)
    content = json.loads(source.read_text())
    content["cells"] = [c for c in content["cells"] if c["id"] != "error"]
    source.write_text(json.dumps(content))
    result = jupyter.work / "parametrized.ipynb"
    argv = [python_with("papermill"), "-m", "papermill", source, result, "-p", "times", "3"]
    jupyter.run(*argv, "--execution-timeout", "60", "--no-progress-bar", limit_s=180)
    executed = json.loads(result.read_text())
    assert executed["metadata"]["papermill"]["exception"] is None
    injected = next(c for c in executed["cells"] if "injected-parameters" in c["metadata"].get("tags", []))
    assert "times = 3" in notebook.text(injected["source"])
    # Numbers are others than in the notebook; and the words come three times, not two.
    wrong = [w for w in notebook.problems(executed, packages, ours) if not re.search(r": number (\d+), not (\d+)$", w)]
    assert [w.split(":")[0] for w in wrong] == ["text", "error"]
    assert "out out out " in wrong[0]


def test_papermill_stops_at_an_error(jupyter: Jupyter, spec: str) -> None:
    content = notebook.build(spec)
    cell = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
    content["cells"] = [{**cell, "id": "a", "source": "1/0"}, {**cell, "id": "b", "source": "print('never')"}]
    source, result = jupyter.work / "fails.ipynb", jupyter.work / "failed.ipynb"
    source.write_text(json.dumps(content))
    r = subprocess.run(
        [python_with("papermill"), "-m", "papermill", str(source), str(result), "--no-progress-bar"],
        env=jupyter.env,
        cwd=jupyter.work,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert r.returncode != 0
    assert "ZeroDivisionError" in r.stderr
    assert "never\n" not in result.read_text()


# ------------------------------------------------------------------ console

ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07|[()][A-Z0-9]|[=>])|\r")


class Console:
    """`jupyter console` on a terminal of its own."""

    def __init__(self, argv: list[str], jupyter: Jupyter) -> None:
        # No answers to prompt_toolkit's questions about the cursor come from this terminal.
        env = {**jupyter.env, "TERM": "dumb", "PROMPT_TOOLKIT_NO_CPR": "1", "COLUMNS": "200", "LINES": "50"}
        self.child = pexpect.spawn(
            argv[0], argv[1:], env=env, cwd=str(jupyter.work), timeout=60, encoding="utf-8", dimensions=(50, 200)
        )

    def until(self, pattern: str) -> str:
        """Waits for this on the screen. Returns what came before, without escapes."""
        self.child.expect(pattern)
        return ESCAPES.sub("", self.child.before + str(self.child.after))

    def prompt(self, number: int) -> str:
        return self.until(rf"In \[{number}\]: ?")

    def type(self, line: str) -> None:
        self.child.sendline(line)

    def ends(self) -> int:
        """Waits for its end. Returns its exit status."""
        self.child.expect(pexpect.EOF)
        self.child.close()
        return self.child.exitstatus

    def close(self) -> None:
        self.child.close(force=True)


@pytest.fixture
def console(jupyter: Jupyter, spec: str) -> Iterator[Callable[..., Console]]:
    opened: list[Console] = []

    def open_console(*options: str) -> Console:
        argv = [python_with("jupyter_console"), "-m", "jupyter_console", "--simple-prompt", *options]
        opened.append(Console(argv, jupyter))
        return opened[-1]

    yield open_console
    for c in opened:
        c.close()


def test_console(console: Callable[..., Console], spec: str, ours: bool) -> None:
    c = console(f"--kernel={spec}")
    c.prompt(1)
    c.type("6 * 7")
    assert "42" in c.prompt(2)
    c.type("print('hello', 'console')")
    assert "hello console" in c.prompt(3)
    c.type("1/0")
    assert "ZeroDivisionError: division by zero" in c.prompt(4)
    c.type("!echo from a shell")
    assert c.prompt(5).count("from a shell") >= 1
    c.type("answer = input('who? ')")
    c.until(r"who\? ")
    c.type("Ada")
    c.prompt(6)
    c.type("answer[::-1]")
    assert "'adA'" in c.prompt(7)
    c.type("import time; print('now'); time.sleep(600)")
    c.until(r"\nnow")
    c.child.sendintr()
    assert "KeyboardInterrupt" in c.prompt(8)
    c.type("await __import__('asyncio').sleep(0.01, 'awaited')")
    assert "'awaited'" in c.prompt(9)
    c.type("exit")
    assert c.ends() == 0


def test_console_approves(console: Callable[..., Console], jupyter: Jupyter, ours: bool) -> None:
    """Without a rule the person is asked, over the channel of input(), with the call as it will be made."""
    if not ours:
        pytest.skip("ipykernel has no MCP tools")
    name = jupyter.install("cellgate-asks", "--mcp", jupyter.mcp_file())
    jupyter.mark.unlink(missing_ok=True)
    c = console(f"--kernel={name}")
    c.prompt(1)
    c.type("from mcptools.echo import danger, echo")
    c.prompt(2)
    c.type("print('got', echo.run(text='console says'))")
    asked = c.until(r"(?i)allow\?[^\n]*: ?$")
    assert "console says" in asked and "echo" in asked
    digits = re.search(r"Allow\? y(\d{3}) ", asked)
    assert digits
    c.type("y" + digits[1])
    assert "got console says" in c.prompt(3)
    c.type("danger.run(text='harm')")
    c.until(r"(?i)allow\?[^\n]*: ?$")
    c.type("n")
    assert "RejectedError" in c.prompt(4)
    assert not jupyter.mark.exists()


def test_console_of_an_existing_kernel(console: Callable[..., Console], jupyter: Jupyter, spec: str) -> None:
    """Two clients of one kernel: what one defines the other sees."""
    with jupyter.kernel(spec) as kernel:
        kernel.run("shared = 'from the other client'")
        c = console("--existing", str(kernel.manager.connection_file))
        c.until(r"In \[\d+\]: ?")
        c.type("shared")
        assert "'from the other client'" in c.until(r"Out\[\d+\]:.*'")
        c.type("shared = 'changed'")
        c.until(r"In \[\d+\]: ?")
        c.type("exit(keep_kernel=True)")
        assert c.ends() == 0
        reply, outputs = kernel.run("print(shared)")
        assert outputs[-2]["content"]["text"] == "changed\n"


# ------------------------------------------------------- @jupyterlab/services


@pytest.fixture(scope="module")
def server(jupyter: Jupyter, spec: str) -> Iterator[str]:
    """A Jupyter server. Its address with the token."""
    with jupyter.server("jupyter_server") as port:
        yield f"http://127.0.0.1:{port}/?token=abc"


def test_jupyterlab_services(jupyter: Jupyter, spec: str, server: str, packages: set[str], ours: bool) -> None:
    """The client library of JupyterLab and of many other front-ends, in node."""
    modules = Path(os.environ.get("CG_CLIENTS_NPM", ""))
    if not (modules / "node_modules/@jupyterlab/services").is_dir():
        pytest.skip("CG_CLIENTS_NPM names no folder with @jupyterlab/services; scripts/soak does")
    written(jupyter, spec, packages, ours)
    jupyter.env["NODE_PATH"] = str(modules / "node_modules")
    argv = ["node", HERE / "services.cjs", server, spec, "notebook.ipynb", jupyter.work]
    r = jupyter.run(*argv, limit_s=180)
    report = json.loads(r.stdout.splitlines()[-1])
    executed = json.loads((jupyter.work / "notebook-services.ipynb").read_text())
    # An output widget is drawn by JupyterLab's widget manager, which this client is without.
    wrong = [w for w in notebook.problems(executed, packages, ours) if not w.startswith("output widget: ")]
    assert wrong == []
    assert report["interrupted"] == "KeyboardInterrupt"
    assert report["restarted"] == "NameError"
    assert report["input"] == "hello Ada"
    assert "zip" in report["completions"]
    assert report["inspected"] is True
    assert report["history"] >= 1
    assert report["comm"] == [{"echo": 1}, {"closed": True}]
    assert report["buffer"] == "cba"
    assert report["statuses"][0] != "dead" and "idle" in report["statuses"]
