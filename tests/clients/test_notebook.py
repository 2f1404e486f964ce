"""A whole notebook through nbclient, which runs notebooks for nbconvert, papermill, Jupyter Book and others."""

import nbformat
import pytest
from clients import notebook
from clients.support import Jupyter
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError


def client_of(content: dict, jupyter: Jupyter, limit_s: int = 30, **options: object) -> NotebookClient:
    nb = nbformat.from_dict(content)
    nbformat.validate(nb)
    return NotebookClient(nb, timeout=limit_s, resources={"metadata": {"path": str(jupyter.work)}}, **options)


def one_cell(spec: str, source: str) -> dict:
    content = notebook.build(spec)
    cell = {"id": "only", "cell_type": "code", "metadata": {}, "source": source, "outputs": [], "execution_count": None}
    return {**content, "cells": [cell]}


def test_every_kind_of_output(jupyter: Jupyter, spec: str, packages: set[str], ours: bool) -> None:
    content = notebook.build(spec, packages, ours)
    with jupyter.environment():
        client = client_of(content, jupyter)
        client.execute()
    nbformat.validate(client.nb)
    assert notebook.problems(client.nb, packages, ours) == []
    assert not jupyter.mark.exists()  # what was refused did not happen
    assert client.nb.metadata.language_info.name == "python"
    if "ipywidgets" in packages:
        state = client.nb.metadata.widgets["application/vnd.jupyter.widget-state+json"]["state"]
        assert {"IntSliderModel", "LabelModel", "VBoxModel"} <= {m["model_name"] for m in state.values()}


def test_an_error_ends_it(jupyter: Jupyter, spec: str) -> None:
    with jupyter.environment(), pytest.raises(CellExecutionError) as failure:
        client_of(one_cell(spec, "print('before')\n1/0"), jupyter).execute()
    assert (failure.value.ename, failure.value.evalue) == ("ZeroDivisionError", "division by zero")


def test_a_cell_over_its_time_is_interrupted(jupyter: Jupyter, spec: str) -> None:
    """nbclient's time limit, then its interrupt: the notebook goes on."""
    content = one_cell(spec, "import time\ntime.sleep(600)")
    content["cells"].append({**content["cells"][0], "id": "next", "source": "print('went on')"})
    with jupyter.environment():
        client = client_of(content, jupyter, limit_s=2, interrupt_on_timeout=True, allow_errors=True)
        client.execute()
    first, second = client.nb.cells
    assert [o.ename for o in first.outputs] == ["KeyboardInterrupt"]
    assert second.outputs[0].text == "went on\n"


def test_a_cell_over_its_time_without_interrupt(jupyter: Jupyter, spec: str) -> None:
    with jupyter.environment(), pytest.raises(CellTimeoutError):
        client_of(one_cell(spec, "import time\ntime.sleep(600)"), jupyter, limit_s=2).execute()


def test_a_dead_kernel_has_a_reason(jupyter: Jupyter, spec: str) -> None:
    """Where other kernels end in silence, the client gets an error like any other."""
    with jupyter.environment(), pytest.raises(CellExecutionError) as failure:
        client_of(one_cell(spec, "import os\nos.kill(os.getpid(), 11)"), jupyter).execute()
    assert "SIGSEGV" in failure.value.evalue
