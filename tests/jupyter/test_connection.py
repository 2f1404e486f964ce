"""Connection files and transports."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest
import zmq
from processes import eventually

CURVE = [zmq.curve_keypair(), zmq.curve_keypair()]
KEYED = {"ip": "127.0.0.1", "transport": "tcp", "key": "k" * 32, "signature_scheme": "hmac-sha256"}


def test_missing_file_is_made_and_removed(start: Any) -> None:
    kernel = start()
    info = kernel.info()
    assert stat.S_IMODE(kernel.file.stat().st_mode) == 0o600
    assert (info["transport"], info["signature_scheme"]) == ("tcp", "hmac-sha256")
    assert len(info["key"]) >= 32
    client = kernel.client()
    assert client.run("6 * 7").result() == "42"
    client.ask("shutdown_request", {"restart": False}, "control")
    assert kernel.wait() == 0
    assert not kernel.file.exists()


def test_ready_fd(start: Any, tmp_path: Path) -> None:
    """Gets its byte when the ports accept connections, and is open in no other process."""
    fifo = tmp_path / "ready"
    os.mkfifo(fifo)
    kernel = start("--ready-fd=7", by=["/bin/bash", "-c", f'exec "$@" 7> {fifo}', "bash"])
    with fifo.open("rb") as f:
        assert f.read(1) == b"\n"
        for channel in ("shell", "iopub", "stdin", "control", "hb"):
            socket.create_connection(("127.0.0.1", kernel.info()[f"{channel}_port"]), 1).close()
        assert f.read() == b""  # although the kernel runs
    assert kernel.client().run("6 * 7").result() == "42"


def test_file_that_is_a_pipe(start: Any, tmp_path: Path) -> None:
    """Until it is written to, signals end the process."""
    file = tmp_path / "pipe"
    os.mkfifo(file)
    kernel = start(file=file)

    writers = []

    def is_read() -> bool:
        with contextlib.suppress(OSError):  # nobody reads it yet
            writers.append(os.open(file, os.O_WRONLY | os.O_NONBLOCK))
        return bool(writers)

    eventually(is_read)
    kernel.process.terminate()
    assert kernel.wait() == -signal.SIGTERM
    os.close(writers[0])


@pytest.mark.parametrize("fd", ["2", "-1", "999999", "x"])
def test_ready_fd_that_is_none(start: Any, fd: str) -> None:
    kernel = start(f"--ready-fd={fd}")
    assert kernel.wait() == 2


def test_ports_of_0_are_written_back(start: Any) -> None:
    kernel = start(connection={**KEYED, "shell_port": 0, "kernel_name": "mine"})
    info = kernel.info()
    assert info["kernel_name"] == "mine"
    ports = [info[f"{c}_port"] for c in ("shell", "iopub", "stdin", "control", "hb")]
    assert len(set(ports)) == 5
    client = kernel.client()
    assert client.run("6 * 7").result() == "42"
    answer = client.ask("connect_request").content
    assert [answer[f"{c}_port"] for c in ("shell", "iopub", "stdin", "control", "hb")] == ports
    client.ask("shutdown_request", channel="control")
    kernel.wait()
    assert kernel.file.exists()  # it was there before


def test_ipc(start: Any) -> None:
    with tempfile.TemporaryDirectory(prefix="cgj-") as folder:
        ports = {f"{c}_port": i + 1 for i, c in enumerate(("shell", "iopub", "stdin", "hb", "control"))}
        kernel = start(connection={**KEYED, "transport": "ipc", "ip": f"{folder}/k", **ports})
        client = kernel.client()
        assert client.run("6 * 7").result() == "42"
        sockets = list(Path(folder).iterdir())
        assert len(sockets) == 5
        assert all(stat.S_IMODE(s.stat().st_mode) & 0o077 == 0 for s in sockets)
        client.ask("shutdown_request", channel="control")
        kernel.wait()
        assert list(Path(folder).iterdir()) == []


def test_files_of_cells_have_the_ordinary_mode(start: Any) -> None:
    """The sockets are private by a mask, which must not reach the kernel."""
    with tempfile.TemporaryDirectory(prefix="cgj-") as folder:
        client = start("--spares=0", connection={**KEYED, "transport": "ipc", "ip": f"{folder}/k"}).client()
        assert client.run("import os; m = os.umask(0o22); oct(m)").result() == "'0o22'"


def test_curve(start: Any) -> None:
    public, secret = zmq.curve_keypair()
    kernel = start(connection={**KEYED, "curve_publickey": public.decode(), "curve_secretkey": secret.decode()})
    client = kernel.client()
    assert client.run("6 * 7").result() == "42"
    beat = client.connect("hb", zmq.REQ)
    beat.send(b"ping")
    assert beat.poll(20000) and beat.recv() == b"ping"
    beat.close(0)
    info = {k: v for k, v in kernel.info().items() if not k.startswith("curve")}
    plain = type(client)(kernel.context, info, join=False)
    plain.send("shell", "kernel_info_request")
    plain.nothing("shell", 1)
    plain.nothing("iopub", 0.1)
    plain.close()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"key": "", "ip": "0.0.0.0"}, "anybody who can connect to 0.0.0.0"),
        ({"curve_publickey": CURVE[0][0].decode(), "curve_secretkey": CURVE[1][1].decode()}, "nobody could connect"),
    ],
)
def test_files_that_are_refused(start: Any, change: dict[str, Any], why: str) -> None:
    """tests/unit/cases/jupyter-connection.txt has a row for each reason."""
    kernel = start(connection={**KEYED, **change})
    assert kernel.wait() == 2
    assert why in kernel.stderr()


@pytest.mark.parametrize(
    ("change", "mode", "line"),
    [
        ({}, 0o600, ""),
        ({}, 0o640, "other users can read or change this file"),
        ({}, 0o602, "other users can read or change this file"),
        ({"key": ""}, 0o600, "every user of this machine"),
        ({"key": "", "transport": "ipc"}, 0o600, "every program of this user"),
    ],
)
def test_a_line_where_others_can_run_code(
    start: Any, tmp_path: Path, change: dict[str, Any], mode: int, line: str
) -> None:
    with tempfile.TemporaryDirectory(prefix="cgj-") as folder:
        ipc = {"ip": f"{folder}/k"} if "transport" in change else {}
        file = tmp_path / "kernel.json"
        file.write_text(json.dumps({**KEYED, **change, **ipc}))
        file.chmod(mode)
        kernel = start(file=file)
        assert kernel.client().run("6 * 7").result() == "42"
        said = [x for x in kernel.stderr().splitlines() if "kernel.json" in x]
        assert len(said) == bool(line) and line in "".join(said)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_line_where_the_file_is_another_user_s(start: Any, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    file = tmp_path / "kernel.json"
    file.write_text(json.dumps(KEYED))
    file.chmod(0o600)
    os.chown(file, 65534, 65534)
    kernel = start(file=file)
    kernel.client()
    assert "other users can read or change this file" in kernel.stderr()


def test_restart_on_the_same_ports(start: Any, tmp_path: Path) -> None:
    """The old process is still there when the new one starts: it waits for the addresses."""
    first = start(connection=KEYED)
    info = first.info()
    old = first.client()
    assert old.run("x = 1; x").result() == "1"
    second = start(file=first.file)
    assert old.ask("shutdown_request", {"restart": True}, "control").content == {"status": "ok", "restart": True}
    assert first.wait() == 0
    client = second.client()
    assert second.info() == info
    assert client.run("'x' in globals()").result() == "False"


def test_address_of_a_living_kernel_is_not_taken(start: Any) -> None:
    first = start(connection=KEYED)
    client = first.client()
    second = start(file=first.file)
    assert second.wait(20) == 2
    assert "is in use" in second.stderr()
    assert client.run("6 * 7").result() == "42"


def test_heartbeat_is_an_echo(client: Any) -> None:
    beat = client.connect("hb", zmq.REQ)
    for data in (b"ping", b"", b"x" * 1000):
        beat.send(data)
        assert beat.poll(20000) and beat.recv() == data
    beat.close(0)


def test_end_of_the_parent_ends_the_kernel(start: Any, monkeypatch: Any, environment: dict[str, str]) -> None:
    import subprocess

    parent = subprocess.Popen(["sleep", "60"])
    environment["JPY_PARENT_PID"] = str(parent.pid)
    kernel = start()
    client = kernel.client()
    assert client.run("6 * 7").result() == "42"
    parent.kill()
    parent.wait()
    assert kernel.wait() == 0


def test_kernel_info(client: Any) -> None:
    run = client.ask("kernel_info_request")
    content = run.content
    assert content["status"] == "ok"
    assert content["protocol_version"] == "5.5"
    assert content["implementation"] == "cellgate"
    assert content["language_info"]["name"] == "python"
    assert content["language_info"]["file_extension"] == ".py"
    assert "sandboxed" in content["banner"]
    assert run.types() == ["busy", "idle"]
    assert json.dumps(content) == json.dumps(client.ask("kernel_info_request", channel="control").content)


def test_options_that_clients_add_for_ipykernel_are_passed_over(start: Any, tmp_path: Path) -> None:
    kernel = start(
        "--HistoryManager.hist_file=:memory:",
        "--IPKernelApp.pylab=inline",
        "--profile-dir",
        str(tmp_path),
        "--profile=x",
        "word",
    )
    assert kernel.client().run("6 * 7").result() == "42"
    (line,) = [line for line in kernel.stderr().splitlines() if "they mean nothing here" in line]
    assert line.endswith(f"--IPKernelApp.pylab=inline --profile-dir {tmp_path} --profile=x word")


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("--spare=2", "did you mean --spares"),
        ("--sandbx=x", "did you mean --sandbox"),
        ("--history=x", "unknown option --history"),
        ("-z", "unknown option -z"),
        ("--limit.x=1", "unknown option --limit.x"),
    ],
)
def test_misspelled_options_are_errors(run_cellgate: Any, tmp_path: Path, word: str, why: str) -> None:
    r = run_cellgate("jupyter", "run", "-f", str(tmp_path / "k.json"), word)
    assert r.returncode == 2
    assert why in r.stderr


def test_signed_files(start: Any, environment: dict[str, str], run_cellgate: Any, tmp_path: Path) -> None:
    kernel = start("--audit", "strict", "--sign-artifacts")
    assert kernel.client().run("open('a.txt', 'w').write('hello')").result() == "5"
    (line,) = run_cellgate("artifacts", env=environment).stdout.splitlines()
    assert f"{tmp_path}/work/a.txt" in run_cellgate("artifacts", line.split()[1], env=environment).stdout
    assert run_cellgate("verify", tmp_path / "work/a.txt", env=environment).returncode == 0
