"""JupyterLab in headless Chromium: a person's notebook, from opening it to approving a tool call. Run by scripts/soak.

Pictures of what the browser showed are left in CG_CLIENTS_SHOTS (default: build/clients-shots), for eyes.
"""

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from clients import notebook
from clients.support import PEER, Jupyter
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

pytestmark = pytest.mark.timeout(300)

BROWSER, DRIVER = "/usr/bin/chromium", "/usr/bin/chromedriver"
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1400,1600",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)


@pytest.fixture(scope="module")
def shots(repo: Path) -> Path:
    folder = Path(os.environ.get("CG_CLIENTS_SHOTS", repo / "build/clients-shots"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="module")
def lab(jupyter: Jupyter) -> Iterator[str]:
    """JupyterLab's server. Its address, without the token `abc`."""
    no_news = ("--LabApp.news_url=", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate")
    with jupyter.server("jupyterlab", "--expose-app-in-browser", *no_news) as port:
        yield f"http://127.0.0.1:{port}"


class Page:
    """One browser window with one notebook in it."""

    def __init__(self, driver: webdriver.Chrome, shots: Path, name: str) -> None:
        self.driver = driver
        self.shots = shots
        self.name = name

    def until(self, look: Callable[[], Any], what: str, limit_s: float = 60) -> Any:
        """Waits until look() says something true. Returns that."""
        deadline = time.monotonic() + limit_s
        while True:
            try:
                if found := look():
                    return found
            except Exception as e:  # the page is being drawn: selenium has a dozen errors that say so
                last: object = e
            else:
                last = None
            if time.monotonic() > deadline:
                self.shot("failed")
                raise AssertionError(f"{what}: not in {limit_s:.0f} s ({last})")
            time.sleep(0.1)

    def command(self, name: str, arguments: dict[str, Any] | None = None) -> None:
        """One of JupyterLab's own commands, as its menus run them. Does not wait for what it starts."""
        script = "window.jupyterapp.commands.execute(arguments[0], arguments[1]); return 1"
        self.driver.execute_script(script, name, arguments or {})

    def open(self, address: str, notebook_name: str) -> None:
        self.driver.get(f"{address}/lab/tree/{notebook_name}?token=abc&reset")
        self.until(lambda: self.driver.execute_script("return !!window.jupyterapp"), "JupyterLab")
        self.until(lambda: self.cells(), "the notebook's cells")
        self.until(lambda: self.kernel_status() == "idle", "an idle kernel")

    def kernel_status(self) -> str:
        return str(
            self.driver.execute_script(
                "const w = window.jupyterapp.shell.currentWidget;"
                "const k = w && w.sessionContext && w.sessionContext.session && w.sessionContext.session.kernel;"
                "return k ? k.status : 'none'"
            )
        )

    def cells(self) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, ".jp-Notebook .jp-CodeCell")

    def model(self) -> dict[str, Any]:
        """The notebook as JupyterLab would save it."""
        return dict(
            self.driver.execute_script(
                "return JSON.parse(JSON.stringify(window.jupyterapp.shell.currentWidget.content.model.toJSON()))"
            )
        )

    def outputs(self, cell_id: str) -> list[dict[str, Any]]:
        return list(next(c["outputs"] for c in self.model()["cells"] if c["id"] == cell_id))

    def select(self, cell_id: str) -> WebElement:
        """Makes a cell the active one and brings it into view."""
        self.driver.execute_script(
            "const n = window.jupyterapp.shell.currentWidget.content;"
            "n.activeCellIndex = n.widgets.findIndex(w => w.model.id === arguments[0]);"
            "n.deselectAll(); n.scrollToItem(n.activeCellIndex, 'center')",
            cell_id,
        )
        return self.until(
            lambda: self.driver.find_element(By.CSS_SELECTOR, ".jp-Notebook .jp-Cell.jp-mod-active"), cell_id
        )

    def run(self, cell_id: str) -> WebElement:
        cell = self.select(cell_id)
        self.command("notebook:run-cell")
        return cell

    def shot(self, what: str) -> None:
        self.driver.save_screenshot(str(self.shots / f"{self.name}-{what}.png"))


@pytest.fixture
def page(jupyter: Jupyter, lab: str, shots: Path, request: pytest.FixtureRequest) -> Iterator[Page]:
    for program in (BROWSER, DRIVER):
        if not shutil.which(program):
            pytest.skip(f"no {program}: scripts/setup --clients installs it")
    options = Options()
    options.binary_location = BROWSER
    for flag in (*FLAGS, f"--user-data-dir={jupyter.home}/browser-{request.node.name}"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=Service(DRIVER, env={**os.environ, "HOME": str(jupyter.home)}))
    try:
        driver.set_script_timeout(60)
        yield Page(driver, shots, request.node.name.removeprefix("test_"))
    finally:
        driver.quit()


def write(jupyter: Jupyter, name: str, kernel: str, sources: dict[str, str]) -> str:
    """A notebook of these cells: id and source."""
    content = notebook.build(kernel)
    cell = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
    content["cells"] = [{**cell, "id": i, "source": s} for i, s in sources.items()]
    (jupyter.work / name).write_text(json.dumps(content))
    return name


def test_whole_notebook(jupyter: Jupyter, spec: str, lab: str, page: Page, packages: set[str], ours: bool) -> None:
    """Every kind of output, drawn."""
    (jupyter.work / "whole.ipynb").write_text(json.dumps(notebook.build(spec, packages, ours)))
    page.open(lab, "whole.ipynb")
    for cell in notebook.build(spec, packages, ours)["cells"][1:]:
        page.run(cell["id"])  # "run all" stops at the cell that is meant to fail
        page.until(lambda: page.kernel_status() == "idle", "idle")
        page.until(
            lambda i=cell["id"]: next(c for c in page.model()["cells"] if c["id"] == i)["execution_count"],
            f"the number of {cell['id']}",
        )
    # An output widget's text is in the widget, not in the notebook; a cell's last output may still be under way.
    page.until(lambda: notebook.problems(page.model(), packages, ours) == [], "what every cell must show", 20)
    page.select("update")
    page.shot("top")
    assert page.driver.find_elements(By.CSS_SELECTOR, "#bold")
    assert page.driver.find_elements(By.CSS_SELECTOR, ".jp-RenderedLatex mjx-container, .jp-RenderedLatex .MathJax")
    assert page.driver.execute_script("return window.cellgate_seen") == 1
    if "matplotlib" in packages:
        page.select("plot")
        image = page.until(
            lambda: page.driver.find_element(By.CSS_SELECTOR, ".jp-mod-active .jp-RenderedImage img"), "the plot"
        )
        assert page.driver.execute_script("return arguments[0].naturalWidth", image) > 200
        page.shot("plot")
    for what in ("slider", "progress", "plotly", "altair"):
        if any(c.name == what for c in notebook.cells(packages, ours)):
            page.select(what)
            time.sleep(1)  # for the picture alone
            page.shot(what)


def test_widget(jupyter: Jupyter, spec: str, lab: str, page: Page, packages: set[str]) -> None:
    """The slider is moved in the browser; the kernel's answer changes the label beside it."""
    if "ipywidgets" not in packages:
        pytest.skip("the kernels' environment has no ipywidgets: scripts/soak makes one that has")
    by_name = {c.name: c.source for c in notebook.CELLS}
    sources = {"slider": by_name["slider"], "value": "slider.value", "interact": by_name["interact"]}
    page.open(lab, write(jupyter, "widget.ipynb", spec, sources))
    page.run("slider")
    handle = page.until(lambda: page.driver.find_element(By.CSS_SELECTOR, ".widget-slider .noUi-handle"), "the slider")
    label = page.until(
        lambda: next(e for e in page.driver.find_elements(By.CSS_SELECTOR, ".widget-label") if "amount is" in e.text),
        "the label",
    )
    assert label.text == "amount is 3"
    page.shot("before")
    for _ in range(4):
        handle.send_keys(Keys.ARROW_RIGHT)
    page.until(lambda: label.text == "amount is 7", "the label's new text")
    page.shot("after")
    page.run("value")
    page.until(lambda: page.outputs("value"), "the slider's value")
    assert notebook.text(page.outputs("value")[0]["data"]["text/plain"]) == "7"
    page.run("interact")

    def says(text: str) -> bool:
        found = page.driver.find_elements(By.CSS_SELECTOR, ".widget-output, .jupyter-widgets-output-area")
        return any(text in e.text for e in found)

    page.until(lambda: says("square 4"), "the function's output")
    handles = page.driver.find_elements(By.CSS_SELECTOR, ".widget-slider .noUi-handle")
    handles[-1].send_keys(Keys.ARROW_RIGHT)
    page.until(lambda: says("square 9"), "the function's next output")
    page.shot("interact")


def test_interrupt_and_restart(jupyter: Jupyter, spec: str, lab: str, page: Page) -> None:
    """With the buttons above the notebook."""
    sources = {
        "long": "state = 1\nimport time\nprint('on')\ntime.sleep(600)",
        "after": "print('state is', state)",
        "fresh": "print('state' in globals())",
    }
    page.open(lab, write(jupyter, "buttons.ipynb", spec, sources))
    page.run("long")
    page.until(lambda: page.outputs("long") and page.kernel_status() == "busy", "the running cell")
    page.driver.find_element(By.CSS_SELECTOR, "[data-command='notebook:interrupt-kernel']").click()
    page.until(lambda: page.outputs("long")[-1].get("ename") == "KeyboardInterrupt", "the interrupt")
    page.run("after")
    page.until(lambda: notebook.stream(page.outputs("after")) == "state is 1\n", "the state after the interrupt")
    page.shot("interrupted")
    page.driver.find_element(By.CSS_SELECTOR, "[data-command='notebook:restart-kernel']").click()
    page.until(lambda: page.driver.find_element(By.CSS_SELECTOR, ".jp-Dialog .jp-mod-accept"), "the dialog").click()
    page.until(lambda: not page.driver.find_elements(By.CSS_SELECTOR, ".jp-Dialog"), "the dialog's end")
    page.until(lambda: page.kernel_status() == "idle", "the restarted kernel")
    page.run("fresh")
    page.until(lambda: notebook.stream(page.outputs("fresh")) == "False\n", "a fresh state")
    page.shot("restarted")


def test_death(jupyter: Jupyter, spec: str, lab: str, page: Page, ours: bool) -> None:
    """No "kernel died" box: the cell says why, and the next one runs."""
    if not ours:
        pytest.skip("ipykernel says nothing when it dies")
    sources = {"dies": "import ctypes\nctypes.string_at(0)", "next": "print('next')"}
    page.open(lab, write(jupyter, "death.ipynb", spec, sources))
    page.run("dies")
    page.until(lambda: "SIGSEGV" in page.outputs("dies")[-1]["evalue"], "the reason")
    page.run("next")
    page.until(lambda: notebook.stream(page.outputs("next")) == "next\n", "the next cell")
    assert not page.driver.find_elements(By.CSS_SELECTOR, ".jp-Dialog")
    page.shot("reason")


def answer(page: Page, cell_id: str, text: str) -> str:
    """Types into the input box below a cell, with the digits of an accepting answer. Returns what was asked."""
    page.until(lambda: page.driver.find_element(By.CSS_SELECTOR, ".jp-Stdin-input"), "the input box")
    asked = page.driver.find_element(By.CSS_SELECTOR, ".jp-Stdin-prompt").text
    page.shot(f"{cell_id}-asked")
    if text == "y":
        shown = page.driver.find_element(By.CSS_SELECTOR, ".jp-Notebook").text
        text += re.findall(r"Allow\? y(\d{3}) ", asked + shown)[-1]

    def typed() -> bool:
        """The box is drawn anew when the notebook scrolls: what was typed before is lost then."""
        boxes = page.driver.find_elements(By.CSS_SELECTOR, ".jp-Stdin-input")
        if boxes and not boxes[0].get_attribute("value"):
            boxes[0].click()
            boxes[0].send_keys(text, Keys.ENTER)
        return not boxes

    page.until(typed, "the input box's end")
    return str(asked)


def test_input(jupyter: Jupyter, spec: str, lab: str, page: Page) -> None:
    page.open(lab, write(jupyter, "input.ipynb", spec, {"ask": "print('hello', input('who? '))"}))
    page.run("ask")
    assert answer(page, "ask", "Ada").strip() == "who?"
    page.until(lambda: notebook.stream(page.outputs("ask")).endswith("hello Ada\n"), "the answer's effect")


def test_approval(jupyter: Jupyter, lab: str, page: Page) -> None:
    """A tool call is asked about in the input box, and happens or not as the person says."""
    if PEER:
        pytest.skip("ipykernel has no MCP tools")
    name = jupyter.install("cellgate-asks", "--mcp", jupyter.mcp_file())
    jupyter.mark.unlink(missing_ok=True)
    sources = {
        "yes": "from mcptools.echo import danger\nprint('done', danger.run(text='first'))",
        "no": "danger.run(text='second')",
    }
    page.open(lab, write(jupyter, "approval.ipynb", name, sources))
    page.run("yes")
    asked = answer(page, "yes", "y")
    shown = page.driver.find_element(By.CSS_SELECTOR, ".jp-Notebook").text
    assert "danger" in asked + shown and "first" in asked + shown
    page.until(lambda: "done first\n" in notebook.stream(page.outputs("yes")), "the approved call's result")
    assert jupyter.mark.read_text() == '{"text": "first"}\n'
    page.run("no")
    answer(page, "no", "n")
    page.until(lambda: page.outputs("no")[-1].get("ename") == "RejectedError", "the refusal")
    assert jupyter.mark.read_text() == '{"text": "first"}\n'
    page.shot("refused")
