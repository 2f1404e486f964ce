"""Signs by which libraries detect the kernel of a notebook."""

from collections.abc import Callable

import pytest
from kernel.harness import Kernel

LOADED = "import sys; print('ipykernel.zmqshell' in sys.modules, 'ipykernel' in sys.modules)"


def test_a_notebook_has_the_shells_module_loaded(spawn: Callable[..., Kernel]) -> None:
    kernel = spawn(front="jupyter")
    if kernel.run("import ipykernel; print(ipykernel.__spec__.origin)").out != "cellgate\n":
        pytest.skip("the kernels' environment has a real ipykernel")
    assert kernel.run(LOADED).out == "True True\n"
    code = "import ipykernel.zmqshell as z; print(isinstance(get_ipython(), z.ZMQInteractiveShell))"
    assert kernel.run(code).out == "True\n"


def test_others_have_not(spawn: Callable[..., Kernel]) -> None:
    assert spawn().run(LOADED).out == "False False\n"


@pytest.mark.parametrize(("front", "theme"), [({"front": "jupyter"}, "neutral"), ({}, "linux")])
def test_colours_are_for_the_page_or_the_terminal(spawn: Callable[..., Kernel], front: dict, theme: str) -> None:
    kernel = spawn(color=True, **front)
    assert kernel.run("print(get_ipython().colors)").out == f"{theme}\n"
    trace = "".join(kernel.run("import os.path\nraise ValueError('x')").more["traceback"])
    assert "\x1b[" in trace
    assert ("\x1b[38;5;255m" in trace) == (theme == "linux")  # white
