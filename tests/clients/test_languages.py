"""Notebooks in other languages through nbclient, and what clients are told about the language."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest
from clients.support import PEER, Jupyter
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

pytestmark = pytest.mark.skipif(bool(PEER), reason="only cellgate's kernels have these languages")

NOTEBOOKS = {
    "shell": ("bash", "text/x-sh", ".sh", ["x=5; cd /usr", "echo $x; pwd; echo e >&2", "false"]),
    "node": (
        "javascript",
        "text/javascript",
        ".js",
        [
            "const x = await 5",
            "console.log(x); console.error('e'); display({'text/html': '<b>h</b>'}); x + 1",
            "throw new TypeError('t')",
        ],
    ),
}
OUTPUTS = {"shell": "5\n/usr\n", "node": "5\n"}


def kinds(cell: Any) -> set[str]:
    return {o["output_type"] for o in cell.outputs}


@pytest.mark.parametrize("language", NOTEBOOKS)
def test_a_notebook(jupyter: Jupyter, language: str) -> None:
    name, mime, extension, cells = NOTEBOOKS[language]
    spec = jupyter.install(f"cellgate-{language}", "--language", language)
    metadata = {"kernelspec": {"name": spec, "display_name": spec, "language": name}}
    nb = nbformat.v4.new_notebook(metadata=metadata, cells=[nbformat.v4.new_code_cell(c) for c in cells])
    with jupyter.environment():
        client = NotebookClient(nb, timeout=60, resources={"metadata": {"path": str(jupyter.work)}})
        with pytest.raises(CellExecutionError, match="exit status 1" if language == "shell" else "TypeError: t"):
            client.execute()
    nbformat.validate(client.nb)
    info = client.nb.metadata.language_info
    assert (info.name, info.mimetype, info.file_extension) == (name, mime, extension)
    first, second, third = client.nb.cells
    assert (first.execution_count, second.execution_count, third.execution_count) == (1, 2, 3)
    assert [o["text"] for o in second.outputs if o["output_type"] == "stream" and o["name"] == "stdout"] == [
        OUTPUTS[language]
    ]
    assert [o["text"] for o in second.outputs if o["output_type"] == "stream" and o["name"] == "stderr"] == ["e\n"]
    assert kinds(third) == {"error"}
    if language == "node":
        assert [o["data"]["text/html"] for o in second.outputs if o["output_type"] == "display_data"] == ["<b>h</b>"]
        assert [o["data"]["text/plain"] for o in second.outputs if o["output_type"] == "execute_result"] == ["6"]


@pytest.mark.parametrize(
    ("language", "cell", "code", "match"),
    [("shell", "my_variable=1", "echo $my_v", "my_variable"), ("node", "const o = {member: 1}", "o.mem", "member")],
)
def test_completion(jupyter: Jupyter, language: str, cell: str, code: str, match: str) -> None:
    spec = jupyter.install(f"cellgate-{language}", "--language", language)
    with jupyter.kernel(spec) as kernel:
        assert kernel.reply(kernel.send(cell))["status"] == "ok"
        found = kernel.reply(kernel.client.complete(code))
        assert (found["matches"], found["cursor_end"]) == ([match], len(code))


def test_another_kernel_of_jupyter(jupyter: Jupyter, jupyter_kernels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [jupyter.env["JUPYTER_PATH"], str(jupyter_kernels / "share/jupyter")]
    monkeypatch.setitem(jupyter.env, "JUPYTER_PATH", ":".join(paths))
    spec = jupyter.install("cellgate-python3", "--language", "jupyter:python3")
    installed = json.loads((jupyter.home / "share/jupyter/kernels" / spec / "kernel.json").read_text())
    assert (installed["language"], installed["metadata"]["supported_features"]) == ("python", [])
    assert installed["display_name"] == "Python 3 (ipykernel) (cellgate)"
    codes = ["x = 5", "print(x)\nx + 1", "1 / 0"]
    nb = nbformat.v4.new_notebook(metadata={"kernelspec": {"name": spec, "display_name": spec, "language": "python"}})
    nb.cells = [nbformat.v4.new_code_cell(code) for code in codes]
    with jupyter.environment():
        client = NotebookClient(nb, timeout=60, resources={"metadata": {"path": str(jupyter.work)}})
        with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
            client.execute()
    nbformat.validate(client.nb)
    info = client.nb.metadata.language_info
    assert (info.name, info.file_extension, info.nbconvert_exporter) == ("python", ".py", "python")
    stream, value = client.nb.cells[1].outputs
    assert (stream["text"], value["data"]["text/plain"]) == ("5\n", "6")
    assert kinds(client.nb.cells[2]) == {"error"}


# A kernel that claims what clients would run, show or take for cellgate's.
FORGED = """
from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp

class Forged(IPythonKernel):
    @property
    def kernel_info(self):
        return {
            "protocol_version": "9" * 100_000, "implementation": "own", "implementation_version": "<b>", "debugger": True,
            "supported_features": ["debugger", "kernel subshells"], "banner": "B\\x1b[2J" + "x" * 100_000,
            "other": {"a": 1}, "status": "error",
            "help_links": [{"text": "T", "url": "javascript:x"}],
            "language_info": {
                "name": "own", "version": ["1"], "mimetype": "text/x-own", "file_extension": "/../../x", "other": 1,
                "codemirror_mode": {"name": "own"}, "nbconvert_exporter": "os.path.x", "pygments_lexer": "a" * 65,
            },
        }

IPKernelApp.launch_instance(kernel_class=Forged)
"""


def test_what_a_hostile_kernel_says_about_itself(
    jupyter: Jupyter, jupyter_kernels: Path, monkeypatch: pytest.MonkeyPatch, outside: Path
) -> None:
    (outside / "forged.py").write_text(FORGED)
    (outside / "kernels/forged").mkdir(parents=True)
    argv = [str(jupyter_kernels / "bin/python"), str(outside / "forged.py"), "-f", "{connection_file}"]
    (outside / "kernels/forged/kernel.json").write_text(
        json.dumps({"argv": argv, "display_name": "F", "language": "f"})
    )
    monkeypatch.setitem(jupyter.env, "JUPYTER_PATH", f"{jupyter.env['JUPYTER_PATH']}:{outside}")
    spec = jupyter.install("cellgate-forged", "--language", "jupyter:forged")
    with jupyter.kernel(spec) as kernel:
        assert kernel.reply(kernel.send("1"))["status"] == "ok"
        info = kernel.reply(kernel.client.kernel_info())
    ours = ["status", "protocol_version", "implementation", "implementation_version", "language_info", "banner"]
    assert sorted(info) == sorted([*ours, "debugger", "help_links", "supported_features"])
    assert (info["status"], info["debugger"], info["supported_features"]) == ("ok", False, [])
    assert (info["implementation"], "<" in info["implementation_version"]) == ("own", False)
    assert info["protocol_version"].startswith("5.")
    assert info["banner"].startswith("B\\x1b[2Jxxx") and len(info["banner"]) < 2100
    assert info["help_links"] == []
    assert info["language_info"] == {
        **{"name": "own", "version": "", "mimetype": "text/x-own", "file_extension": ".txt"}
    }
