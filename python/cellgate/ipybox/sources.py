"""generate_mcp_sources(), and where the definitions of servers are kept: with the host, out of the reach of cells.

A generated package only names its server. A cell that imports it can call the server if this user's
programs have generated the package where it is; what is written in the package does not matter.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cellgate._errors import CellgateError
from cellgate.aio import Session
from cellgate.ipybox.folders import LINKS_MAX, open_folder

logger = logging.getLogger(__name__)

_READ_PACKAGE = """
import importlib, json, pathlib
package = importlib.import_module("mcptools." + {package!r})
print(json.dumps({{f.name: f.read_text() for f in pathlib.Path(package.__file__).parent.iterdir() if f.is_file()}}))
"""


async def generate_mcp_sources(
    server_name: str, server_params: dict[str, Any], root_dir: Path, async_api: bool = False
) -> list[str]:
    """Makes the package ROOT_DIR/SERVER_NAME with a module for each tool of an MCP server; returns their names.

    @server_params: as ipybox's, or any other of docs/mcp-servers.md. Replaces an older package.
    """
    if not server_name or "/" in server_name or "\0" in server_name or server_name in (".", ".."):
        raise ValueError(f"a server's name is the name of a folder, and {server_name!r} is not")
    params = _say(_absolute(json.loads(json.dumps(server_params))))
    with tempfile.TemporaryDirectory(prefix="cellgate-") as folder:
        async with Session(folder) as session:
            report = (await session.add_mcp_servers({server_name: {**params, "start": "eager"}}))[server_name]
            if "error" in report:
                raise CellgateError(report["error"])
            execution = await session.run(_READ_PACKAGE.format(package=report["package"]))
            files: dict[str, str] = json.loads(execution.check().stdout)
    if text := report.get("pins", {}).get("text"):
        logger.warning("%s: %s", server_name, text)
    modules = [(tool["tool"], tool["module"]) for tool in report["tools"] if "module" in tool]
    names = []
    for tool, module in modules:
        name = re.sub(r"[^a-zA-Z0-9_]", "_", tool).lower()
        if f"{name}.py" not in files:
            files[f"{name}.py"] = files[f"{module}.py"]
        names.append(name)
    if async_api:
        for name in {n for _, n in modules} | set(names):
            files[f"{name}.py"] += "\nrun, call = run_async, call_async\n"
    await asyncio.to_thread(_write_package, Path(root_dir), server_name, files)
    await asyncio.to_thread(_register, Path(root_dir), server_name, params)
    return names


def _absolute(params: dict[str, Any]) -> dict[str, Any]:
    """Servers start in a folder of their own: relative paths among the arguments begin here instead."""
    for i, arg in enumerate(params.get("args") or ()):
        if isinstance(arg, str) and (arg in (".", "..") or arg.startswith(("./", "../")) or os.path.isfile(arg)):
            params["args"][i] = os.path.abspath(arg)
    return params


def _say(params: dict[str, Any]) -> dict[str, Any]:
    """ipybox's definitions do not say what the paths in them are: files below this folder are code.

    With srt, whose settings file is one of them, folders are data: a server obeys its sandbox whatever is there.
    """
    if "code" in params or "data" in params:
        return params
    paths = [Path(arg) for arg in params.get("args") or () if isinstance(arg, str) and arg.startswith("/")]
    code = {str(p.parent) for p in paths if os.path.isfile(p) and Path.cwd() in p.parent.parents}
    data = {str(p) for p in paths if os.path.isdir(p) and params.get("command") == "srt"}
    return {**params, "code": sorted(code), "data": sorted(data)}


def _write_package(root_dir: Path, name: str, files: dict[str, str]) -> None:
    with open_folder(root_dir) as root:
        # shutil.rmtree() cannot follow the folders of a cell that are deeper than Python's stack.
        remove = ["rm", "-rf", "--", f"/proc/self/fd/{root}/{name}"]
        subprocess.run(remove, pass_fds=[root], stderr=subprocess.DEVNULL, check=False)
        os.mkdir(name, dir_fd=root)
        folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=root)
        try:
            for file, text in files.items():
                fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=folder)
                with open(fd, "w", encoding="utf-8") as f:
                    f.write(text)
        finally:
            os.close(folder)


# ---------------------------------------------------------------- definitions


def _state() -> Path:
    """Sandboxes hide the folder above it."""
    base = os.environ.get("XDG_STATE_HOME", "")
    above = Path(base if base.startswith("/") else Path.home() / ".local/state") / "cellgate"
    folder = above / "ipybox"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    st = folder.lstat()
    if folder.is_symlink() or st.st_uid != os.geteuid() or st.st_mode & 0o077:
        raise CellgateError(f"{folder} is not a folder of this user with mode 0700: chmod or remove it")
    return folder


def _entries() -> list[tuple[Path, Path, dict[str, Any]]]:
    """File, package and content of each definition. Those of packages that were removed are removed, too."""
    found = []
    for file in _state().glob("*.json"):
        entry = json.loads(file.read_text(encoding="utf-8"))
        package = Path(entry["package"])
        if os.path.isdir(package):  # an error of one, as of a folder that a cell has closed, is not the others'
            found.append((file, package, entry))
        else:
            file.unlink(missing_ok=True)
    return found


def _register(root_dir: Path, name: str, params: dict[str, Any]) -> None:
    package = str(Path(os.path.abspath(root_dir)) / name)
    _entries()
    file = _state() / (hashlib.sha256(os.fsencode(package)).hexdigest() + ".json")
    fd, temporary = tempfile.mkstemp(dir=file.parent)
    with open(fd, "w", encoding="utf-8") as f:
        json.dump({"package": package, "server": name, "params": params}, f)
    os.replace(temporary, file)


def definitions_stamp() -> int:
    """Changes when a definition is added or removed."""
    return _state().stat().st_mtime_ns


def _real(path: Path, workspace: Path) -> Path:
    """Where a path leads, but by no link in the workspace: a cell could have made it."""
    path = Path(os.path.abspath(path))
    for _ in range(LINKS_MAX):
        link = next((p for p in (*reversed(path.parents), path) if os.path.islink(p)), None)
        if link is None or link.is_relative_to(workspace):
            break
        path = Path(os.path.normpath(link.parent / os.readlink(link) / path.relative_to(link)))
    return path


def registered(roots: Sequence[Path], workspace: Path) -> dict[str, Any]:
    """Definitions of the servers whose packages are below one of the folders; earlier folders take precedence."""
    entries = _entries()
    found: dict[str, Any] = {}
    for root in (*roots, workspace):
        real = _real(root, workspace)
        for _, package, entry in sorted(entries, key=lambda e: e[0].stat().st_mtime_ns, reverse=True):
            if package.is_relative_to(root) or package.is_relative_to(real):
                found.setdefault(entry["server"], entry["params"])
    return found
