"""Magics of ipykernel, and figures."""

import base64
from collections.abc import Callable
from pathlib import Path

import pytest
from kernel.harness import Kernel


@pytest.fixture
def notebook(spawn: Callable[..., Kernel]) -> Kernel:
    return spawn(front="jupyter", color=True)


def test_less_and_more(kernel: Kernel, notebook: Kernel) -> None:
    (kernel.workspace / "f.txt").write_text("line one\nline two\n")
    (kernel.workspace / "f.py").write_text("def f(): pass\n")
    for magic in ("%less", "%more"):
        assert kernel.run(f"{magic} f.txt").messages[0].json["data"]["text/plain"] == "line one\nline two\n"
        (page,) = notebook.run(f"{magic} f.txt").more["payload"]
        assert page["data"]["text/plain"] == "line one\nline two\n"
    assert "\x1b[" in notebook.run("%less f.py").more["payload"][0]["data"]["text/plain"]
    assert "\x1b[" not in kernel.run("%less f.py").messages[0].json["data"]["text/plain"]
    assert kernel.run("%less nosuch.txt").reply["ename"] == "FileNotFoundError"
    assert kernel.run("%less").reply["ename"] == "UsageError"


def test_man(kernel: Kernel) -> None:
    tools = kernel.workspace / "tools"
    tools.mkdir()
    for name, text in (("man", "#!/bin/sh\necho manual page of $1\n"), ("col", "#!/bin/sh\ncat\n")):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    kernel.run(f"import os; os.environ['PATH'] = {str(tools)!r} + ':' + os.environ['PATH']")
    assert "manual page of ls" in kernel.run("%man ls").messages[0].json["data"]["text/plain"]
    assert kernel.run("%man").reply["ename"] == "UsageError"


def test_clear(kernel: Kernel) -> None:
    assert [m.type for m in kernel.run("%clear").messages] == ["CLEAR_OUTPUT"]


def test_autosave(kernel: Kernel) -> None:
    r = kernel.run("%autosave 30")
    assert "30000" in r.of("DISPLAY_DATA")[0].json["data"]["application/javascript"]
    assert r.out == "Autosaving every 30 seconds\n"
    assert kernel.run("%autosave 0").out == "Autosave disabled\n"
    assert kernel.run("%autosave often").reply["ename"] == "UsageError"


@pytest.mark.parametrize("magic", ["%connect_info", "%qtconsole"])
def test_what_cannot_work_says_why(kernel: Kernel, magic: str) -> None:
    r = kernel.run(magic)
    assert r.reply["ename"] == "UsageError" and "kernel" in r.reply["evalue"]


def test_edit_is_a_payload(notebook: Kernel) -> None:
    path = notebook.workspace / "mine.py"
    path.write_text("x = 1\n\ndef f():\n    return 1\n")
    assert notebook.run("%edit mine.py").more["payload"] == [
        {"source": "edit_magic", "filename": str(path), "line_number": None}
    ]
    notebook.run("import mine")
    (p,) = notebook.run("%edit mine.f").more["payload"]
    assert (p["filename"], p["line_number"]) == (str(path), 3)
    notebook.run("def here(): pass")
    assert notebook.run("%edit nosuchthing").more.get("payload", []) == []


@pytest.fixture
def figures(packages_kernel: Kernel) -> Kernel:
    return packages_kernel


def test_figures_at_the_end_of_the_cell(figures: Kernel) -> None:
    r = figures.run("import matplotlib.pyplot as plt\nplt.plot([1, 2]);\nprint('before')", timeout=60)
    assert r.status == "ok", r
    assert [m.type for m in r.messages if not (m.type == "STREAM" and m.flags)] == ["STREAM", "DISPLAY_DATA"]
    png = base64.b64decode(r.of("DISPLAY_DATA")[0].json["data"]["image/png"])
    assert png.startswith(b"\x89PNG")
    assert figures.run("len(plt.get_fignums())").result == "0"


def test_inline_and_its_options(figures: Kernel) -> None:
    r = figures.run(
        "%config InlineBackend.figure_formats = ['svg']\n%matplotlib inline\nimport matplotlib.pyplot as plt\nplt.plot([1]);",
        timeout=60,
    )
    assert r.status == "ok", r
    assert (
        list(r.of("DISPLAY_DATA")[0].json["data"]) == ["image/svg+xml", "text/plain"]
        or "image/svg+xml" in r.of("DISPLAY_DATA")[0].json["data"]
    )
    r = figures.run("%config InlineBackend.figure_formats = ['png']\nplt.plot([1])\nplt.show()\nprint('after')")
    assert [m.type for m in r.messages] == ["DISPLAY_DATA", "STREAM"]
    assert "image/png" in r.of("DISPLAY_DATA")[0].json["data"]
    assert "figure_formats" in figures.run("%config InlineBackend").out


def test_a_figure_of_a_comm_message(figures: Kernel, workspace: Path) -> None:
    figures.run(
        "%matplotlib inline\nimport comm, matplotlib.pyplot as plt\nc = comm.create_comm(target_name='t')\n"
        "c.on_msg(lambda m: plt.plot([1]))",
        timeout=60,
    )
    ident = figures.run("c.comm_id").result.strip("'")  # type: ignore[union-attr]
    _, messages = figures.reply(figures.request("comm_msg", {"comm_id": ident, "data": {}}))
    assert [m.type for m in messages] == ["DISPLAY_DATA"]
