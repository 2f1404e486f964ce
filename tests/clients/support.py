"""Support for tests with Jupyter clients: a kernelspec of the programs under test, in folders of its own.

CG_CLIENTS_PEER=PYTHON puts the ipykernel of that interpreter in cellgate's place. It is how these tests are tried out: what
ipykernel passes and cellgate does not is a difference to explain.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

PEER = os.environ.get("CG_CLIENTS_PEER", "")
ECHO_SERVER = Path(__file__).resolve().parent.parent / "api/echo_server.py"


class Jupyter:
    """A user's Jupyter folders, empty but for the kernelspecs that are installed, and the supervisor that comes of them."""

    def __init__(self, prefix: Path, slowness: float = 1.0) -> None:
        self.prefix = prefix
        self.slowness = slowness
        # Not pytest's folder: the path of a socket has room for about 100 bytes.
        self.home = Path(tempfile.mkdtemp(prefix="cg-", dir="/tmp"))
        self.data = self.home / "share/jupyter"
        self.work = self.home / "work"
        self.mark = self.home / "mark"
        for folder in (self.data, self.work, self.home / "run"):
            folder.mkdir(parents=True, mode=0o700)
        self.env = {
            **os.environ,
            "HOME": str(self.home),
            "JUPYTER_PATH": str(self.data),
            "JUPYTER_DATA_DIR": str(self.home / "data"),
            "JUPYTER_RUNTIME_DIR": str(self.home / "run"),
            "JUPYTER_CONFIG_DIR": str(self.home / "config"),
            "JUPYTER_PLATFORM_DIRS": "1",
            "IPYTHONDIR": str(self.home / "ipython"),
            "XDG_RUNTIME_DIR": str(self.home / "run"),
            "MPLCONFIGDIR": str(self.home / "mpl"),
        }
        self.env.pop("JPY_PARENT_PID", None)
        self.env.pop("CELLGATE_PRIVATE", None)  # kernels share a supervisor, as a user's do

    def mcp_file(self) -> Path:
        """Definition of one MCP server, `echo`; what its tool `danger` does is seen in self.mark."""
        path = self.home / "servers.json"
        server = {"command": "/usr/bin/python3", "args": [str(ECHO_SERVER)], "env": {"MARK": str(self.mark)}}
        path.write_text(json.dumps({"mcpServers": {"echo": server}}))
        return path

    def install(self, name: str, *options: str | Path) -> str:
        """Installs a kernelspec with these options of `cellgate jupyter install`. Returns its name."""
        if PEER:
            folder = self.data / "kernels" / name
            folder.mkdir(parents=True)
            argv = [PEER, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
            spec = {"argv": argv, "display_name": name, "language": "python"}
            (folder / "kernel.json").write_text(json.dumps(spec))
            return name
        program = self.prefix / "bin/cellgate"
        argv = [program, "jupyter", "install", "--prefix", self.home, "--name", name, "--linger", "5", *options]
        self.run(*argv)
        return name

    def run(self, *argv: str | Path, limit_s: float = 60) -> subprocess.CompletedProcess[str]:
        """Runs a program as this user; its failure is the test's."""
        r = subprocess.run(
            [str(a) for a in argv],
            env=self.env,
            cwd=self.work,
            capture_output=True,
            text=True,
            timeout=limit_s * self.slowness,
        )
        assert r.returncode == 0, f"{argv}: {r.returncode}\n{r.stdout[-3000:]}\n{r.stderr[-6000:]}"
        return r

    @contextlib.contextmanager
    def environment(self) -> Iterator[None]:
        """This user's variables in our own process, for jupyter_client."""
        saved = dict(os.environ)
        os.environ.clear()
        os.environ.update(self.env)
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(saved)

    @contextlib.contextmanager
    def kernel(self, name: str, transport: str = "tcp") -> Iterator[Kernel]:
        with self.environment():
            # Named before the start: ipc sockets get their path from it, else one in the current folder.
            file = self.home / f"run/kernel-{uuid.uuid4().hex}.json"
            manager = KernelManager(kernel_name=name, transport=transport, connection_file=str(file))
            manager.start_kernel(cwd=str(self.work), env=dict(self.env))
            kernel = Kernel(manager, self.slowness)
            try:
                kernel.client.wait_for_ready(timeout=60 * self.slowness)
                yield kernel
            finally:
                kernel.close()

    @contextlib.contextmanager
    def server(self, module: str, *options: str) -> Iterator[int]:
        """A Jupyter server, this module of the clients' environment, with the token `abc`. Its port."""
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = int(s.getsockname()[1])
        log = self.home / f"{module}.log"
        argv = [python_with(module), "-m", module, "--no-browser", f"--port={port}", "--allow-root", *options]
        argv += ["--IdentityProvider.token=abc", f"--ServerApp.root_dir={self.work}"]
        with log.open("wb") as out:
            process = subprocess.Popen(argv, env=self.env, cwd=self.work, stdout=out, stderr=out)
        try:
            deadline = time.monotonic() + 60
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    assert process.poll() is None and time.monotonic() < deadline, log.read_text()[-3000:]
                    time.sleep(0.1)
            yield port
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def processes(self) -> dict[int, str]:
        """The processes that run with our folders, from their environment: kernelspecs', supervisors', not kernels'."""
        wanted = f"XDG_RUNTIME_DIR={self.home}/run".encode()
        found = {}
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found[int(entry.name)] = (
                        (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    )
            except OSError:
                continue  # ended meanwhile, or another user's
        return found

    def close(self) -> list[str]:
        """Ends the supervisor, which waits for further notebooks. Returns what did not end in time."""
        deadline = time.monotonic() + 20 * self.slowness
        asked: set[int] = set()
        while (alive := self.processes()) and time.monotonic() < deadline:
            for pid in alive.keys() - asked:
                if "cellgate-supervisor" in alive[pid]:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGTERM)
                    asked.add(pid)
            time.sleep(0.05)
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.home, ignore_errors=True)
        return sorted(alive.values())


class Kernel:
    """A kernel that a KernelManager started, and its client."""

    def __init__(self, manager: KernelManager, slowness: float) -> None:
        self.manager = manager
        self.slowness = slowness
        self.client: BlockingKernelClient = manager.blocking_client()
        self.client.start_channels()

    def send(self, code: str, **options: Any) -> str:
        return self.client.execute(code, **options)

    def reply(self, request: str, limit_s: float = 30) -> dict[str, Any]:
        """The content of the one reply to this request."""
        while True:
            message = self.client.get_shell_msg(timeout=limit_s * self.slowness)
            if message["parent_header"].get("msg_id") == request:
                return dict(message["content"])

    def outputs(self, request: str, limit_s: float = 30) -> list[dict[str, Any]]:
        """Return the request's messages on iopub, up to its idle."""
        found = []
        while True:
            message = self.client.get_iopub_msg(timeout=limit_s * self.slowness)
            if message["parent_header"].get("msg_id") != request:
                continue
            found.append(message)
            if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                return found

    def starts(self, request: str, limit_s: float = 30) -> None:
        """Waits until the cell runs."""
        while True:
            message = self.client.get_iopub_msg(timeout=limit_s * self.slowness)
            if message["parent_header"].get("msg_id") == request and message["msg_type"] == "execute_input":
                return

    def says(self, request: str, text: str, limit_s: float = 30) -> None:
        """Waits until the cell has printed this."""
        seen = ""
        while text not in seen:
            message = self.client.get_iopub_msg(timeout=limit_s * self.slowness)
            if message["parent_header"].get("msg_id") == request and message["msg_type"] == "stream":
                seen += message["content"]["text"]

    def run(self, code: str, limit_s: float = 30, **options: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Runs a cell. Returns its reply and its messages on iopub."""
        request = self.send(code, **options)
        return self.reply(request, limit_s), self.outputs(request, limit_s)

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=False)


def text_of(messages: list[dict[str, Any]], stream: str = "stdout") -> str:
    return "".join(
        m["content"]["text"] for m in messages if m["msg_type"] == "stream" and m["content"]["name"] == stream
    )


def packages_of(python: str | Path) -> set[str]:
    """Which of the packages that notebooks use this interpreter has."""
    names = ("debugpy", "pandas", "matplotlib", "ipywidgets", "tqdm", "plotly", "altair", "rich")
    code = f"import importlib.util as u; print(*[n for n in {names!r} if u.find_spec(n)])"
    r = subprocess.run([str(python), "-I", "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return set(r.stdout.split())


def python_with(module: str) -> str:
    """Our interpreter, where it has this module: the clients' environment."""
    import importlib.util

    import pytest

    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{sys.executable} has no {module}: scripts/setup --clients makes an environment that has")
    return sys.executable
