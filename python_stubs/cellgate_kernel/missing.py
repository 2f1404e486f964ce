"""Notes below the traceback on how to install missing modules."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator

from cellgate_kernel.denials import MARK

# Values of the session option "front".
JUPYTER = "jupyter"
MCP = "mcp"

# Packages whose names differ from those of their modules.
_PACKAGES = {
    "Bio": "biopython",
    "Crypto": "pycryptodome",
    "MySQLdb": "mysqlclient",
    "OpenSSL": "pyOpenSSL",
    "PIL": "pillow",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cairo": "pycairo",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "discord": "discord.py",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "faiss": "faiss-cpu",
    "fitz": "PyMuPDF",
    "git": "GitPython",
    "github": "PyGithub",
    "googleapiclient": "google-api-python-client",
    "igraph": "python-igraph",
    "jose": "python-jose",
    "jwt": "PyJWT",
    "kafka": "kafka-python",
    "ldap": "python-ldap",
    "magic": "python-magic",
    "mpl_toolkits": "matplotlib",
    "nacl": "PyNaCl",
    "osgeo": "GDAL",
    "pkg_resources": "setuptools",
    "pptx": "python-pptx",
    "psycopg2": "psycopg2-binary",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "slugify": "python-slugify",
    "telegram": "python-telegram-bot",
    "umap": "umap-learn",
    "usb": "pyusb",
    "win32com": "pywin32",
    "yaml": "PyYAML",
    "zmq": "pyzmq",
}
# Modules of cellgate, which are in no index.
_OWN = frozenset({"mcptools", "cellgate_kernel", "cellgate_tools", "_cellgate"})
_MAX_CHAIN = 16


def _chain(value: BaseException) -> Iterator[ModuleNotFoundError]:
    """`value`, or its cause if it is an ImportError that wraps another one."""
    e: BaseException | None = value
    for _ in range(_MAX_CHAIN):
        if not isinstance(e, ImportError):
            return
        if isinstance(e, ModuleNotFoundError):
            yield e
        e = e.__cause__ or e.__context__


def package_of(module: str) -> str | None:
    """The package with this module, or None if there is probably none."""
    top = module.partition(".")[0]
    if not top.isidentifier() or not top.isascii() or len(top) > 64 or top.startswith("_") or top in _OWN:
        return None
    if top in sys.stdlib_module_names or top in sys.modules:
        return None
    try:
        if importlib.util.find_spec(top) is not None:  # the package is installed and has no such submodule
            return None
    except (ImportError, ValueError, AttributeError):
        return None
    return _PACKAGES.get(top, top.replace("_", "-"))


def how(package: str, front: str, sandboxed: bool, environment: str) -> str:
    """How the reader of this front's output can install a package."""
    if front == MCP:
        return f'call the tool install_package with package_name "{package}", then import it in the next cell'
    if not sandboxed:
        return f"%pip install {package}"
    if environment:
        return f"run `cellgate env add {environment} {package}` outside of the kernel, then start a new session"
    return (
        f"run `cellgate env create NAME {package}` outside of the kernel, then start it with --kernel-env NAME; or, "
        f"for all kernels, `{sys.prefix}/bin/pip install {package}`"
    )


def _of_tools(module: str) -> str:
    """A sentence for the name of an MCP server, or one that is like mcptools; "" for others."""
    try:
        servers: list[str] = importlib.import_module("mcptools").servers()
    except ImportError:
        return ""
    from difflib import get_close_matches  # as keys.py

    if module.lower() in servers:
        return f"tools of the MCP server {module.lower()}: from mcptools.{module.lower()} import TOOL"
    if module.lower().replace("_", "").startswith("mcp") and get_close_matches(module.lower(), ["mcptools"], 1, 0.8):
        return f"tools of MCP servers: from mcptools.SERVER import TOOL; servers: {', '.join(servers[:20]) or 'none'}"
    return ""


def explain(value: BaseException, front: str, sandboxed: bool, environment: str) -> list[str]:
    """A list with a note about the module that is missing according to `value`, or an empty list.

    `environment` is the folder that the host chose for kernels; "": the built-in environment.
    """
    for e in _chain(value):
        package = package_of(e.name) if isinstance(e.name, str) else None
        if package is None:
            continue
        top = str(e.name).partition(".")[0]
        tools = _of_tools(top)
        if tools:
            return [f"{MARK}there is no module {top} here; {tools}"]
        known = top in _PACKAGES
        what = f"the module {top} is of the package {package}" if known else f"there is no module {top} here"
        if_ = "" if known else f"if the package {package} is meant, "
        return [f"{MARK}{what}; {if_}to install it: {how(package, front, sandboxed, environment)}"]
    return []
