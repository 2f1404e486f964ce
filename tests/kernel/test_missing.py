"""Notes about missing modules: how to install them, and when there is no note."""

from pathlib import Path

import pytest
from kernel.harness import Kernel, Zygote


def note(kernel: Kernel, code: str) -> str:
    error = kernel.run(code).error
    assert "[cellgate]" not in error["evalue"]  # values that programs compare are unchanged
    found = [line for line in error["traceback"] if line.startswith("[cellgate] ")]
    assert len(found) <= 1
    return found[0] if found else ""


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("requests", "requests"),
        ("cv2", "opencv-python-headless"),
        ("PIL.Image", "pillow"),
        ("sklearn.svm", "scikit-learn"),
        ("yaml", "PyYAML"),
        ("bs4", "beautifulsoup4"),
        ("some_package", "some-package"),
    ],
)
def test_the_note_names_the_package(kernel: Kernel, module: str, package: str) -> None:
    assert f"`cellgate env create NAME {package}`" in note(kernel, f"import {module}")


def test_each_front_is_told_what_it_can_use(zygote: Zygote, workspace: Path) -> None:
    with zygote.spawn(workspace, front="mcp") as kernel:
        text = note(kernel, "import requests")
        assert 'install_package with package_name "requests"' in text and "pip" not in text
    with zygote.spawn(workspace, front="jupyter") as kernel:
        assert "--kernel-env NAME" in note(kernel, "import requests")
    with zygote.spawn(workspace, front="jupyter", sandbox=False) as kernel:
        assert note(kernel, "import requests").endswith("%pip install requests")
    with zygote.spawn(workspace, kernel_env="/opt/science") as kernel:
        assert "`cellgate env add /opt/science requests`" in note(kernel, "import requests")


@pytest.mark.parametrize(
    "code",
    [
        "import mcptools.nothing",
        "from cellgate_kernel import nothing; import cellgate_kernel.nothing",
        "import _private",
        "import os.nothing",
        "import json.nothing",
        "import tkinter.nothing",
        "from . import x",
        "from .x import y",
        "raise ModuleNotFoundError('mine')",
        "raise ModuleNotFoundError('mine', name='a b; c')",
        "raise ModuleNotFoundError('mine', name='x' * 100)",
        "raise ModuleNotFoundError('mine', name='\\u0430pple')",
        "raise ImportError('mine', name='requests')",
        "try:\n    import requests\nexcept ImportError:\n    1/0",
    ],
)
def test_no_note(kernel: Kernel, code: str) -> None:
    assert note(kernel, code) == ""


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import shop", "there is no module shop here; tools of the MCP server shop: from mcptools.shop import TOOL"),
        ("from mcp_tools.shop import x", "from mcptools.SERVER import TOOL; servers: shop"),
        ("import mcptool", "from mcptools.SERVER import TOOL; servers: shop"),
    ],
)
def test_modules_that_mean_tools(kernel: Kernel, code: str, said: str) -> None:
    kernel.run(
        "open('mcptools.py', 'w').write('def servers(): return [\"shop\"]')\nimport sys; sys.path.insert(0, '.')"
    )
    assert note(kernel, code).endswith(said)


def test_an_import_error_that_wraps_it_has_the_note(kernel: Kernel) -> None:
    code = "try:\n    import openpyxl\nexcept ImportError as e:\n    raise ImportError('needs openpyxl') from e"
    assert "NAME openpyxl`" in note(kernel, code)


def test_the_exception_is_as_it_was(kernel: Kernel) -> None:
    code = "try:\n    import requests\nexcept ModuleNotFoundError as e:\n    print([e.msg, str(e), e.args, getattr(e, '__notes__', 0)])"
    r = kernel.run(code)
    assert (r.status, r.err) == ("ok", "")
    assert r.out.strip() == "[\"No module named 'requests'\", \"No module named 'requests'\", (\"No module named 'requests'\",), 0]"
