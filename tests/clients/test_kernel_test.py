"""jupyter_kernel_test, the Jupyter project's own tests of kernels, all of them, over tcp and ipc."""

import os
from collections.abc import Iterator

import jupyter_kernel_test
import pytest
from clients.support import Jupyter
from jupyter_client.manager import KernelManager


@pytest.fixture(scope="module", autouse=True)
def in_jupyter(jupyter: Jupyter, spec: str) -> Iterator[None]:
    """The tests look for their kernelspec by its name, and start kernels in the current folder."""
    where = os.getcwd()
    with jupyter.environment():
        os.chdir(jupyter.work)
        try:
            yield
        finally:
            os.chdir(where)


class Settings:
    """Parameters of the tests that depend on the kernel."""

    kernel_name = "cellgate-test"
    language_name = "python"
    file_extension = ".py"
    code_hello_world = "print('hello, world')"
    code_stderr = "import sys\nprint('to stderr', file=sys.stderr)"
    completion_samples = [{"text": "zi", "matches": {"zip"}}]
    complete_code_samples = ["1", "print('hello, world')", "def f(x):\n  return x*2\n\n\n"]
    incomplete_code_samples = ["print('''hello", "def f(x):\n  x*2", "for i in range(3):"]
    invalid_code_samples = ["import = 7q", "1 1"]
    code_page_something = "zip?"
    code_generate_error = "raise"
    code_execute_result = [
        {"code": "1+2+3", "result": "6"},
        {"code": "[n*n for n in range(1, 4)]", "result": "[1, 4, 9]"},
    ]
    code_display_data = [
        {"code": "from IPython.display import HTML, display; display(HTML('<b>x</b>'))", "mime": "text/html"},
        {"code": "from IPython.display import Math, display; display(Math('x^2'))", "mime": "text/latex"},
        {"code": "from IPython.display import SVG, display; display(SVG('<svg></svg>'))", "mime": "image/svg+xml"},
    ]
    code_history_pattern = "1?2*"
    supported_history_operations = ("tail", "range", "search")
    code_inspect_sample = "zip"
    code_clear_output = "from IPython.display import clear_output; clear_output()"
    support_iopub_welcome = True


class OverTcp(Settings, jupyter_kernel_test.KernelTests):
    pass


class OverIpc(Settings, jupyter_kernel_test.KernelTests):
    @classmethod
    def setUpClass(cls) -> None:
        cls.km = KernelManager(kernel_name=cls.kernel_name, transport="ipc")
        cls.km.start_kernel()
        cls.kc = cls.km.blocking_client()
        cls.kc.start_channels()
        cls.kc.wait_for_ready(timeout=60)


class WelcomeOverTcp(Settings, jupyter_kernel_test.IopubWelcomeTests):
    pass


class WelcomeOverIpc(Settings, jupyter_kernel_test.IopubWelcomeTests):
    @classmethod
    def setUpClass(cls) -> None:
        cls.km = KernelManager(kernel_name=cls.kernel_name, transport="ipc")
        cls.km.start_kernel()
        cls.kc = cls.km.client()


@pytest.mark.parametrize("tests", [OverTcp, OverIpc, WelcomeOverTcp, WelcomeOverIpc])
def test_none_is_left_out(tests: type) -> None:
    """The package skips tests without a setting: every setting has a value here."""
    known = {n: v for base in tests.__mro__ if base.__module__ == "jupyter_kernel_test" for n, v in vars(base).items()}
    settings = [n for n, v in known.items() if not n.startswith("_") and isinstance(v, str | list | tuple | bool)]
    assert settings
    assert [n for n in settings if not getattr(tests, n)] == []
