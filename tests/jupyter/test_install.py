"""`cellgate jupyter install`: the kernelspec, and that what it says can be started."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager


@pytest.fixture
def data_dir(tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "data"
    environment["JUPYTER_DATA_DIR"] = str(folder)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return folder


def install(run_cellgate: Any, *args: str | Path) -> Any:
    return run_cellgate("jupyter", "install", *args)


def spec_in(folder: Path, name: str = "cellgate") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "kernels" / name / "kernel.json").read_text())
    return found


def test_default(data_dir: Path, run_cellgate: Any, cellgate: Path) -> None:
    r = install(run_cellgate)
    assert (r.returncode, r.stderr) == (0, "")
    assert r.stdout == f"Installed kernelspec cellgate in {data_dir}/kernels/cellgate\n"
    spec = spec_in(data_dir)
    program = Path(spec["argv"][0])  # the installed one, at any path below the prefix
    assert program.is_absolute() and program.is_file() and cellgate.parent.parent in program.parents
    assert spec["argv"][1:] == ["jupyter", "run", "-f", "{connection_file}"]
    assert spec["display_name"] == "Python (cellgate)"
    assert spec["language"] == "python"
    assert spec["interrupt_mode"] == "message"
    assert spec["metadata"]["supported_encryption"] == ["curve"]
    features = spec["metadata"]["supported_features"]
    assert ("debugger" in features) == spec["metadata"]["debugger"]
    assert "kernel subshells" in features
    assert KernelSpecManager(data_dir=str(data_dir)).get_kernel_spec("cellgate").argv == spec["argv"]


def test_lax_rules_are_kept(data_dir: Path, run_cellgate: Any) -> None:
    install(run_cellgate, "--lax-rules", "--approve", "!fs.write_*")
    assert spec_in(data_dir)["argv"][-2:] == ["--lax-rules", "--approve=!fs.write_*"]


def test_logos(data_dir: Path, run_cellgate: Any) -> None:
    install(run_cellgate)
    folder = data_dir / "kernels/cellgate"
    for size in (32, 64):
        png = (folder / f"logo-{size}x{size}.png").read_bytes()
        assert png.startswith(b"\x89PNG")
        assert int.from_bytes(png[16:20]) == int.from_bytes(png[20:24]) == size
    assert "<svg" in (folder / "logo-svg.svg").read_text()


def test_options_are_repeated(data_dir: Path, run_cellgate: Any, tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_text("{}")
    rules = {"network": {"allowedDomains": [], "deniedDomains": []}}
    rules["filesystem"] = {"denyRead": [], "allowWrite": [], "denyWrite": []}
    (tmp_path / "s.json").write_text(json.dumps(rules))
    r = install(
        run_cellgate, "--name", "mine", "--display-name", "Mein Kernel ä", "--mcp", "mcp.json", "--approve", "fs.read_*",
        "--approve", "!fs.write_*", "--preload", "numpy", "--env", "A=b c", "--env", "HOME", "--sandbox=s.json", "--spares=2",
    )  # fmt: skip
    assert r.returncode == 0
    spec = spec_in(data_dir, "mine")
    assert spec["display_name"] == "Mein Kernel ä"
    assert spec["argv"][5:] == [
        f"--mcp={tmp_path.resolve()}/mcp.json", "--approve=fs.read_*", "--approve=!fs.write_*", "--preload=numpy",
        "--env=A=b c", "--env=HOME", f"--sandbox={tmp_path.resolve()}/s.json", "--spares=2",
    ]  # fmt: skip


def test_without_sandbox(data_dir: Path, run_cellgate: Any) -> None:
    assert install(run_cellgate, "--no-sandbox").returncode == 0
    assert spec_in(data_dir)["argv"][5:] == ["--no-sandbox"]
    assert install(run_cellgate, "--limit", "memoryMb=900", "--limit", "cores=1.5").returncode == 0
    assert spec_in(data_dir)["argv"][5:] == ["--limit=memoryMb=900", "--limit=cores=1.5"]


def test_prefix(data_dir: Path, run_cellgate: Any, tmp_path: Path) -> None:
    assert install(run_cellgate, "--prefix", tmp_path / "p").returncode == 0
    assert (tmp_path / "p/share/jupyter/kernels/cellgate/kernel.json").exists()
    assert not data_dir.exists()


def test_sys_prefix(data_dir: Path, run_cellgate: Any, tmp_path: Path) -> None:
    r = run_cellgate("jupyter", "install", "--sys-prefix", env={"VIRTUAL_ENV": str(tmp_path / "venv")})
    assert r.returncode == 0
    assert (tmp_path / "venv/share/jupyter/kernels/cellgate/kernel.json").exists()
    r = run_cellgate("jupyter", "install", "--sys-prefix", env={"VIRTUAL_ENV": "", "CONDA_PREFIX": ""})
    assert r.returncode == 2
    assert "no environment is active" in r.stderr


def test_provisioner(data_dir: Path, run_cellgate: Any, tmp_path: Path) -> None:
    """A Jupyter without the package refuses a kernelspec with its provisioner: it is named only where the package is."""

    def named(folder: Path) -> object:
        return spec_in(folder)["metadata"].get("kernel_provisioner")

    ours = {"provisioner_name": "cellgate-provisioner"}
    prefix, venv = tmp_path / "prefix", tmp_path / "venv"
    for packages in (prefix / "lib/python3/dist-packages", venv / "lib/python3.11/site-packages"):
        (packages / "cellgate").mkdir(parents=True)
    env = {"VIRTUAL_ENV": str(venv)}
    for folder, options in ((prefix, ("--prefix", prefix)), (venv, ("--sys-prefix",))):
        assert run_cellgate("jupyter", "install", *options, env=env).returncode == 0
        assert named(folder / "share/jupyter") is None
        (module,) = folder.glob("lib/*/*/cellgate")
        (module / "jupyter_provisioner.py").write_text("")
        assert run_cellgate("jupyter", "install", *options, env=env).returncode == 0
        assert named(folder / "share/jupyter") == ours
        assert run_cellgate("jupyter", "install", *options, "--provisioner", "never", env=env).returncode == 0
        assert named(folder / "share/jupyter") is None
    assert run_cellgate("jupyter", "install", "--user", env=env).returncode == 0
    assert named(data_dir) is None
    assert run_cellgate("jupyter", "install", "--user", "--provisioner=always").returncode == 0
    assert named(data_dir) == ours
    assert "provisioner" not in " ".join(spec_in(data_dir)["argv"])
    r = run_cellgate("jupyter", "install", "--provisioner", "yes")
    assert (r.returncode, "use auto, always or never" in r.stderr) == (2, True)


def test_again_replaces(data_dir: Path, run_cellgate: Any) -> None:
    install(run_cellgate, "--display-name", "one")
    install(run_cellgate, "--display-name", "two")
    assert spec_in(data_dir)["display_name"] == "two"
    assert sorted(p.name for p in (data_dir / "kernels/cellgate").iterdir()) == [
        "kernel.json",
        "logo-32x32.png",
        "logo-64x64.png",
        "logo-svg.svg",
    ]


def test_another_kernels_files_are_left_alone(data_dir: Path, run_cellgate: Any, tmp_path: Path) -> None:
    """Folders of the name itself, and targets of a link that another program made, such as code in the workspace."""
    kernels = data_dir / "kernels"
    (kernels / "python3").mkdir(parents=True)
    (kernels / "notes").mkdir()
    (kernels / "broken").mkdir()
    (kernels / "python3/kernel.json").write_text(
        '{"argv": ["python3", "-m", "ipykernel_launcher"], "display_name": "Python 3"}'
    )
    (kernels / "notes/notes.txt").write_text("mine")
    (kernels / "broken/kernel.json").write_text('{"argv"')
    (kernels / "cellgate").symlink_to(kernels / "notes")
    os.mkfifo(tmp_path / "fifo")
    (kernels / "fifo").mkdir()
    (kernels / "fifo/kernel.json").symlink_to(tmp_path / "fifo")
    before = {p: p.read_bytes() for p in kernels.rglob("*") if p.is_file()}
    for name in ("python3", "notes", "broken", "cellgate", "fifo"):
        r = install(run_cellgate, "--name", name)
        assert r.returncode == 2
        assert f"kernels/{name}: it has files of another kernel: choose another --name" in r.stderr
    assert {p: p.read_bytes() for p in kernels.rglob("*") if p.is_file()} == before


def test_what_lies_in_its_folder_is_neither_opened_nor_left_half_replaced(
    data_dir: Path, run_cellgate: Any, tmp_path: Path
) -> None:
    folder = data_dir / "kernels/cellgate"
    assert install(run_cellgate).returncode == 0
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    (folder / "logo-svg.svg").unlink()
    (folder / "logo-svg.svg").symlink_to(victim)
    assert install(run_cellgate).returncode == 0
    assert victim.read_text() == "untouched" and not (folder / "logo-svg.svg").is_symlink()
    (folder / "logo-64x64.png").unlink()
    (folder / "logo-64x64.png").mkdir()
    assert "logo-64x64.png: Is a directory" in install(run_cellgate).stderr
    assert sorted(p.name for p in folder.glob(".*")) == []


def test_temporary_names_that_are_fifos(data_dir: Path, run_cellgate: Any) -> None:
    """Its process number can be guessed: all of the next ones are taken here."""
    folder = data_dir / "kernels/cellgate"
    folder.mkdir(parents=True)
    last = subprocess.Popen(["true"])
    last.wait()
    for n in range(last.pid, last.pid + 3000):
        os.mkfifo(folder / f".kernel.json.{n}")
    assert install(run_cellgate).returncode == 0
    assert spec_in(data_dir)["argv"][1:3] == ["jupyter", "run"]


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["--name", "../x"], "not a name for a kernel"),
        (["--name", ""], "not a name for a kernel"),
        (["--name=-x"], "not a name for a kernel"),
        (["--prefix", ""], "--prefix needs a folder"),
        (["--user", "--prefix", "x"], "give one of"),
        (["--approve", "everything"], "approval rule"),
        (["--mcp", "missing.json"], "missing.json"),
        (["--sandbox", "missing.json"], "missing.json"),
        (["--sandbox", "bad.json"], "network.allowedDomains: Required"),
        (["--sandbox", "bad.json", "--no-sandbox"], "contradict"),
        (["--env", "=x"], "--env needs"),
        (["--spares", "-1"], "--spares"),
        (["--pref", "x"], "did you mean --prefix"),
        (["word"], 'unexpected argument "word"'),
    ],
)
def test_what_is_refused(data_dir: Path, run_cellgate: Any, tmp_path: Path, args: list[str], why: str) -> None:
    (tmp_path / "bad.json").write_text('{"network": {}, "filesystem": {"denyRed": []}}')
    r = install(run_cellgate, *args)
    assert r.returncode == 2
    assert why in r.stderr
    assert not data_dir.exists()


def test_usage(run_cellgate: Any) -> None:
    for command in ("install", "run", "attach", "list"):
        r = run_cellgate("jupyter", command, "--help")
        assert (r.returncode, r.stderr) == (0, "")
        assert r.stdout.startswith(f"Usage: cellgate jupyter {command}")
    assert run_cellgate("jupyter").returncode == 2
    assert run_cellgate("jupyter", "nope").returncode == 2
    assert "which connection file" in run_cellgate("jupyter", "run").stderr
    assert "which session" in run_cellgate("jupyter", "attach").stderr


def test_jupyter_starts_it(data_dir: Path, run_cellgate: Any, slowness: float) -> None:
    """With Jupyter's own manager and client: start, run, interrupt, restart, end."""
    install(run_cellgate, "--env", "GREETING=hello", "--linger=2")
    manager = KernelManager(kernel_name="cellgate", kernel_spec_manager=KernelSpecManager(data_dir=str(data_dir)))
    manager.start_kernel(cwd=str(data_dir))
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=30 * slowness)
        seen: list[str] = []
        reply = client.execute_interactive(
            "import os; print(os.environ['GREETING'])",
            timeout=20 * slowness,
            output_hook=lambda m: seen.append(m["content"].get("text", "")),
        )
        assert reply["content"]["status"] == "ok"
        assert "".join(seen) == "hello\n"
        request = client.execute("import time; time.sleep(100)")
        while client.get_iopub_msg(timeout=20)["msg_type"] != "execute_input":
            pass
        manager.interrupt_kernel()
        while (message := client.get_shell_msg(timeout=20 * slowness))["parent_header"]["msg_id"] != request:
            pass
        assert message["content"]["ename"] == "KeyboardInterrupt"
        # Answered before the restart: the new kernel could get it otherwise.
        client.execute_interactive("x = 1", timeout=20 * slowness)
        manager.restart_kernel(now=False)
        client.wait_for_ready(timeout=30 * slowness)
        reply = client.execute_interactive("x", timeout=20 * slowness, output_hook=lambda m: None)
        assert reply["content"]["ename"] == "NameError"
        assert client.is_alive()
    finally:
        client.stop_channels()
        manager.shutdown_kernel()
    assert not manager.is_alive()


def test_file_that_cannot_be_made(run_cellgate: Any, environment: dict[str, str]) -> None:
    r = run_cellgate("jupyter", "run", "-f", "/nonexistent/x.json", env=environment)
    assert r.returncode == 2
    assert "/nonexistent/x.json" in r.stderr


def test_a_kernel_on_another_machine(data_dir: Path, run_cellgate: Any, cellgate: Path, tmp_path: Path) -> None:
    """The far end is on this machine; the folder is named as it is there."""
    (tmp_path / "there").mkdir()
    there = f"{cellgate} relay"
    r = install(run_cellgate, f"--connect={there}", "--workspace", tmp_path / "there", "--kernel-env", "absent")
    assert (r.returncode, r.stderr) == (0, "")
    assert spec_in(data_dir)["argv"][-1] == "--kernel-env=absent"
    assert install(run_cellgate, "--connect", there, "--workspace", tmp_path / "there").returncode == 0
    manager = KernelManager(kernel_name="cellgate", kernel_spec_manager=KernelSpecManager(data_dir=str(data_dir)))
    manager.start_kernel()
    try:
        client = manager.blocking_client()
        client.start_channels()
        client.wait_for_ready(timeout=60)
        shown = []
        client.execute_interactive("import os\nprint(os.getcwd())", output_hook=shown.append, timeout=60)
        assert "".join(m["content"].get("text", "") for m in shown) == f"{tmp_path}/there\n"
        manager.restart_kernel(now=True)
        client.wait_for_ready(timeout=60)
        client.stop_channels()
    finally:
        manager.shutdown_kernel(now=True)
    r = install(run_cellgate, "--workspace", tmp_path)
    assert r.returncode == 2 and "--workspace is for --connect" in r.stderr
