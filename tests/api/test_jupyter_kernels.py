"""Sessions whose language is another kernel of Jupyter (docs/languages.md): ipykernel, xeus-python and bash_kernel."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import web
from cellgate_api import CellgateError, Client, Event, Session
from processes import eventually
from rounds import peer, with_peers
from tables import read_table

Start = Callable[..., Session]
# (code, value or standard output, or the name of the error), in order
TABLE = read_table(Path(__file__).parent / "data/jupyter_cells.json")
CELLS = {"python3": TABLE["python"], "xpython": TABLE["python"], "bash": TABLE["bash"]}


@pytest.fixture(autouse=True)
def path(jupyter_kernels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_PATH", str(jupyter_kernels / "share/jupyter"))


@pytest.fixture(scope="module")
def module_workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("workspace")


@pytest.fixture(scope="module")
def session(client: Client, module_workspace: Path, jupyter_kernels: Path) -> Iterator[Session]:
    """One for the tests that leave it usable: ipykernel takes most of a second to start."""
    with pytest.MonkeyPatch.context() as m:
        m.setenv("JUPYTER_PATH", str(jupyter_kernels / "share/jupyter"))
        s = client.session(workspace=module_workspace, language="jupyter:python3")
    with s:
        yield s


def spec(folder: Path, name: str, **members: object) -> None:
    """A kernelspec of the test's own."""
    (folder / "kernels" / name).mkdir(parents=True)
    (folder / "kernels" / name / "kernel.json").write_text(json.dumps(members))


def run_cells(s: Session, name: str) -> None:
    for code, expected in CELLS[name]:
        out = s.run(code)
        if out.error:
            assert (out.status, out.error["ename"]) == ("error", expected), (code, out)
        else:
            assert (out.status, out.value or out.stdout or None) == ("ok", expected), (code, out)


def interrupt(s: Session, sleep: str, show: str) -> None:
    assert s.run("x=5").status == "ok"
    assert s.run(sleep, timeout_ms=500).status == "timeout"
    out = s.run(show)
    assert out.stdout == "5\n", out


def test_cells_and_an_interrupt_that_keeps_the_state(session: Session, module_workspace: Path) -> None:
    run_cells(session, "python3")
    assert session.run(f"os.chdir({str(module_workspace)!r})").status == "ok"
    interrupt(session, "import time; time.sleep(30)", "print(x)")


@peer
@pytest.mark.parametrize("name", ["xpython", "bash"])
def test_cells_of_other_kernels(client: Client, workspace: Path, name: str) -> None:
    with client.session(workspace=workspace, language=f"jupyter:{name}") as s:
        run_cells(s, name)
        if name == "bash":
            interrupt(s, "sleep 30", "echo $x")


def test_an_interrupt_by_message(
    client: Client, workspace: Path, outside: Path, jupyter_kernels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    argv = [str(jupyter_kernels / "bin/python"), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec(outside, "own", argv=argv, interrupt_mode="message")
    monkeypatch.setenv("JUPYTER_PATH", str(outside))
    with client.session(workspace=workspace, language="jupyter:own") as s:
        interrupt(s, "import time; time.sleep(30)", "print(x)")


def test_a_kernel_that_ignores_interrupts_is_ended(session: Session) -> None:
    ignore = "import signal, time; x = 1; signal.signal(signal.SIGINT, signal.SIG_IGN)"
    out = session.run(f"{ignore}\nwhile True: time.sleep(1)", timeout_ms=300)
    assert out.status == "timeout" and "its variables are lost" in out.stderr
    assert session.run("x").error["ename"] == "NameError"


@pytest.mark.parametrize("code", ["os._exit(3)", "os.kill(os.getpid(), 9)"])
def test_a_kernel_that_ends(session: Session, code: str) -> None:
    out = session.run(f"import os; print('before', flush=True); {code}")
    assert (out.status, out.error["ename"]) == ("error", "KernelEnded")
    assert session.run("1").value == "1"


def test_much_output(session: Session) -> None:
    out = session.run("for i in range(100): print('x' * 99_999)")
    assert (out.status, len(out.stdout)) == ("ok", 10_000_000)
    assert session.run("1").value == "1"


def test_a_flood_can_be_interrupted(session: Session) -> None:
    assert session.run("while True: print('x' * 1000)", timeout_ms=100).status == "timeout"
    assert session.run("1").value == "1"


def test_output_after_a_cell_is_its_own(session: Session) -> None:
    code = "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.3), print('late'))).start()"
    number = session.execute(code)
    session.until("result")
    late = session.until("stream")[-1]
    assert (late.cell, late.text) == (number, "late\n")


def test_input(session: Session) -> None:
    session.execute("import getpass\ninput('a? ') + getpass.getpass('b? ')", allow_stdin=True)
    question = session.until("input_request")[-1]
    assert question.json == {"prompt": "a? ", "password": False}
    session.input("1")
    assert session.until("input_request")[-1].json == {"prompt": "b? ", "password": True}
    session.input("2")
    assert session.until("execute_result")[-1].json["data"]["text/plain"] == "'12'"
    session.until("result")
    assert session.run("input()").error["ename"] == "StdinNotImplementedError"


def test_an_interrupt_ends_input(session: Session) -> None:
    number = session.execute("input('a? ')", allow_stdin=True)
    session.until("input_request")
    session.cancel(number)
    assert session.until("result")[-1].status == "cancelled"
    assert session.run("1").value == "1"


def test_display(session: Session) -> None:
    code = "from IPython.display import *\ndisplay(HTML('<b>x</b>')); h = display(1, display_id=True); h.update(2); clear_output()"
    out = session.run(code)
    kinds = [(e.type, e.json.get("data", {}).get("text/html")) for e in out.events if "display" in e.type]
    assert kinds[0] == ("display_data", "<b>x</b>") and kinds[-1][0] == "update_display_data"
    assert "clear_output" in [e.type for e in out.events]
    value = next(e for e in session.run("HTML('<i>')").events if e.type == "execute_result")
    assert value.json["data"]["text/html"] == "<i>" and value.json["execution_count"] == out.result.count + 1


def test_requests_about_code(session: Session) -> None:
    session.run("alpha = 5\n%config IPCompleter.use_jedi = False")  # whose import takes seconds
    content = session.ask("complete_request", {"code": "x = alp", "cursor_pos": 7}, timeout_ms=120_000).json
    assert content.get("matches") == ["alpha"] and content["cursor_start"] == 4, content
    content = session.ask("inspect_request", {"code": "alpha", "cursor_pos": 5, "detail_level": 0}).json
    assert content["found"] and "int" in content["data"]["text/plain"]
    assert session.ask("is_complete_request", {"code": "if 1:"}).json["status"] == "incomplete"
    info = session.ask("kernel_info_request", {}).json
    assert (info["implementation"], info["debugger"]) == ("ipython", False)
    assert "is a variable of another kernel" in session.ask("get_variables", {"names": ["alpha"]}).json["evalue"]


def test_no_tools_counts_and_info(session: Session) -> None:
    assert session.info["language"] == "jupyter:python3"
    first = session.run("1").result.count
    assert [session.run(code).result.count for code in ("1 / 0", "1")] == [first + 1, first + 2]
    assert session.run("import mcptools").error["ename"] == "ModuleNotFoundError"


def test_a_time_limit_and_artifacts(session: Session, module_workspace: Path) -> None:
    out = session.run("open('made', 'w').write('a')", artifacts=1)
    found = [a["path"] for a in out.result.artifacts["files"] if "/.ipython/" not in a["path"]]  # ipykernel's own
    assert found == [str(module_workspace / "made")]
    start = time.monotonic()
    assert session.run("import time; time.sleep(60)", timeout_ms=300).status == "timeout"
    assert time.monotonic() - start < 10


# ---------------------------------------------------------------- the sandbox

DENIED = {
    "write": ("open('/etc/cellgate-test', 'w')", "OSError"),
    "secret": ("open('{secret}').read()", "OSError"),
    "unix socket": ("import socket; socket.socket(socket.AF_UNIX)", "PermissionError"),
    "host": ("import socket; socket.create_connection(('192.0.2.1', 80), 3)", "OSError"),
    "listener of the machine": (
        "import socket; socket.create_connection(('127.0.0.1', {port}), 3)",
        "ConnectionRefusedError",
    ),
    "other processes": ("import os; os.kill({pid}, 0)", "ProcessLookupError|PermissionError"),
}


@pytest.mark.parametrize("exec", ["deny", "ask"])
def test_only_the_session_starts_its_kernel(client: Client, workspace: Path, exec: str) -> None:
    asked = []

    def decide(e: Event) -> bool:
        asked.append(json.loads(e.args)["argv"][0])
        return False

    with client.session(workspace=workspace, language="jupyter:python3", exec=exec) as s:
        for argv in (["/bin/echo", "ran"], ["/proc/self/exe", "-c", "print('ran')"], ["/usr/bin/python3", "-c", "1"]):
            out = s.run(f"import subprocess; subprocess.run({argv})", decide=decide)
            assert out.error["ename"] == "PermissionError", out
        assert s.run("6 * 7", decide=decide).value == "42"
        if exec == "deny":
            s.run("import os; os.kill(os.getpid(), 9)")
            assert s.run("6 * 7").value == "42"
    programs = [name for name in asked if name != "uname"]  # which ipykernel starts
    assert programs == (["/bin/echo", "/proc/self/exe", "/usr/bin/python3"] if exec == "ask" else [])


@pytest.mark.parametrize("rules", ["ask", {"default": "ask", "commands": "tree"}])
@pytest.mark.parametrize("name", with_peers(["bash", "script"], "script"))
def test_each_program_below_a_kernel_is_asked_about(
    client: Client, workspace: Path, outside: Path, jupyter_kernels: Path, monkeypatch: pytest.MonkeyPatch,
    name: str, rules: object,
) -> None:  # fmt: skip
    """Also where the program that runs the cells is one that the kernel's own program has started."""
    python = f"{jupyter_kernels}/bin/python"
    (outside / "script").write_text(f'#!/bin/sh\nexec {python} -m ipykernel_launcher -f "$1"\n')
    (outside / "script").chmod(0o755)
    spec(outside, "script", argv=[str(outside / "script"), "{connection_file}"])
    spec(outside, "bash", argv=[python, "-m", "bash_kernel", "-f", "{connection_file}"])
    monkeypatch.setenv("JUPYTER_PATH", str(outside))
    asked = []

    def decide(e: Event) -> bool:
        asked.append(json.loads(e.args)["argv"])
        return asked[-1][:2] != ["/bin/echo", "no"]

    echo = "/bin/echo {}" if name == "bash" else "import subprocess; print(subprocess.getoutput('/bin/echo {}'))"
    with client.session(workspace=workspace, language=f"jupyter:{name}", exec=rules) as s:
        assert s.run(echo.format("yes"), decide=decide).stdout == "yes\n"
        assert "no\n" not in s.run(echo.format("no"), decide=decide).stdout
    assert ["/bin/echo", "yes"] in asked and ["/bin/echo", "no"] in asked, asked


def test_a_kernel_reaches_what_cells_reach_and_no_more(client: Client, workspace: Path, outside: Path) -> None:
    (outside / "secret").write_text("s")
    (outside / "readable").write_text("r")
    settings = web.settings(filesystem={"denyRead": [f"{outside}/secret"], "allowWrite": [str(workspace)]})
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        client.session(workspace=workspace, language="jupyter:python3", settings=settings) as session,
    ):
        values = {"port": listener.getsockname()[1], "pid": os.getpid(), "secret": outside / "secret"}
        assert session.run(f"open('{outside}/readable').read()").value == "'r'"
        for name, (code, error) in DENIED.items():
            out = session.run(code.format(**values))
            assert out.error, (name, out)
            if name not in ("write", "secret"):
                assert out.error["ename"] in error.split("|") or error == "OSError", (name, out.error)
    assert not Path("/etc/cellgate-test").exists()


@pytest.mark.parametrize("way", ["file", "link to the file", "link to the folder", "link that cells may change"])
def test_the_kernelspec_is_not_the_cells(
    client: Client, workspace: Path, outside: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Nor may cells change a link of its path."""
    argv = ["/usr/bin/python3", "{connection_file}"]
    mine = workspace / "jupyter"
    settings = web.settings(filesystem={"allowWrite": [str(workspace)]})
    if way == "link that cells may change":
        spec(outside, "own", argv=argv)
        mine.symlink_to(outside)
    else:
        spec(mine, "own", argv=argv)
    if way == "link to the file":
        (outside / "kernels/own").mkdir(parents=True)
        (outside / "kernels/own/kernel.json").symlink_to(mine / "kernels/own/kernel.json")
        mine = outside
    elif way == "link to the folder":
        (outside / "kernels").symlink_to(mine / "kernels")
        mine = outside
    monkeypatch.setenv("JUPYTER_PATH", str(mine))
    with pytest.raises(CellgateError, match=r"kernelspec .*/own/kernel.json: cells could write /.*jupyter.*, and the next session"):
        client.session(workspace=workspace, language="jupyter:own", settings=settings)


@pytest.mark.parametrize("what", ["kernelspec", "policy file"])
@pytest.mark.parametrize("way", ["file", "link to the file", "link that cells may change"])
def test_what_a_session_obeys_is_not_the_cells_of_another(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, what: str
) -> None:
    """Unless that session may not write it."""
    mine, other, outside = (tmp_path / name for name in ("mine", "other", "outside"))
    found = other
    for folder in (mine, other, outside):
        folder.mkdir()
    holder = outside if way == "link that cells may change" else other
    spec(holder, "own", argv=["/usr/bin/python3", "{connection_file}"])
    (holder / "policy.json").write_text("{}")
    if way == "link that cells may change":
        for name in ("kernels", "policy.json"):
            (other / name).symlink_to(outside / name)
    elif way == "link to the file":
        found = outside
        for name in ("kernels", "policy.json"):
            (outside / name).symlink_to(other / name)
    monkeypatch.setenv("JUPYTER_PATH", str(found))
    options = {"policies": [str(found / "policy.json")]} if what == "policy file" else {"language": "jupyter:own"}
    settings = web.settings(filesystem={"allowWrite": []})
    with (
        client.session(workspace=other),
        pytest.raises(CellgateError, match=f"^{what} {found}/.*: cells of another session, whose workspace is {other}"),
    ):
        client.session(workspace=mine, **options)
    with client.session(workspace=other, settings=settings), client.session(workspace=mine, **options):
        pass


def test_a_spare_is_no_session_that_could_have_written_it(tmp_path: Path) -> None:
    for name in ("mine", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "other/policy.json").write_text("{}")
    policies = [str(tmp_path / "other/policy.json")]
    with Client() as c:
        with c.session(workspace=tmp_path / "other"):
            eventually(lambda: c.status()["spares"])
        c.session(workspace=tmp_path / "mine", policies=policies).close()


def test_no_cell_moves_a_folder_above_a_kernelspec(client: Client, workspace: Path) -> None:
    """With the file in denyWrite, the kernelspec is accepted."""
    spec(workspace / "jupyter", "own", argv=["/usr/bin/python3", "{connection_file}"])
    file = workspace / "jupyter/kernels/own/kernel.json"
    settings = web.settings(filesystem={"allowWrite": [str(workspace)], "denyWrite": [str(file)]})
    with client.session(workspace=workspace, settings=settings) as s:
        assert s.run("open('jupyter/other', 'w').close()").status == "ok"
        for path in (file, file.parent, file.parents[1], file.parents[2]):
            out = s.run(f"import os\nos.rename({str(path)!r}, {str(workspace / 'moved')!r})")
            assert out.error and out.error["ename"] in ("OSError", "PermissionError"), (path, out)
    assert file.exists()


def test_what_is_missing_is_named(
    client: Client, workspace: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_PATH", str(outside))
    spec(outside, "none", argv=["/none/program"])
    spec(outside, "broken", argv=["/usr/bin/python3", "-c", "raise SystemExit('no such module')", "{connection_file}"])
    spec(outside, "hidden", argv=["/usr/bin/python3", "/tmp/cellgate-none", "{connection_file}"])
    spec(outside, "list", argv="x")
    for name, why in {
        "none": "its program /none/program is not there",
        "other": 'no kernel of Jupyter is named "other"',
        "list": "must be a list",
        "../x": "is not known",
    }.items():
        with pytest.raises(CellgateError, match=why):
            client.session(workspace=workspace, language=f"jupyter:{name}")
    for name, why in {
        "broken": "no such module",
        "hidden": "/tmp/cellgate-none, which the sandbox does not show",
    }.items():
        with client.session(workspace=workspace, language=f"jupyter:{name}") as s:
            assert why in s.run("1").error["evalue"]


def test_a_file_that_is_removed_meanwhile(
    client: Client, workspace: Path, outside: Path, jupyter_kernels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = outside / "launch.py"
    launch.write_text("from ipykernel.kernelapp import launch_new_instance\nlaunch_new_instance()\n")
    spec(outside, "own", argv=[str(jupyter_kernels / "bin/python"), str(launch), "-f", "{connection_file}"])
    monkeypatch.setenv("JUPYTER_PATH", str(outside))
    with client.session(workspace=workspace, language="jupyter:own") as s:
        assert s.run("import os; os.kill(os.getpid(), 9)").error["ename"] == "KernelEnded"
        launch.rename(outside / "other.py")
        for _ in range(3):
            out = s.run("1")
            assert out.error["ename"] == "KernelFiles" and "it was removed" in out.error["evalue"], out
        (outside / "other.py").rename(launch)
        assert s.run("6 * 7").value == "42"


# A kernel that breaks rules: what it sends instead of messages, after the handshake.
HOSTILE = """
import json, socket, struct, sys, threading
c = json.load(open(sys.argv[1]))
def serve(name):
    with socket.create_server(("127.0.0.1", c[name + "_port"])) as l:
        s, _ = l.accept()
        ready = b"\\5READY" + b"\\x0bSocket-Type" + struct.pack(">I", 6) + b"ROUTER"
        s.sendall(b"\\xff" + bytes(8) + b"\\x7f\\3\\0NULL" + bytes(48) + bytes([4, len(ready)]) + ready)
        while True:
            s.sendall({data})
for name in ("shell", "iopub", "stdin", "control"):
    threading.Thread(target=serve, args=(name,)).start()
"""


@pytest.mark.parametrize(
    ("data", "status"),
    [
        ("b'x' * 65536", "timeout"),  # messages of one part that mean nothing
        ("b'\\2' + b'\\xff' * 8", "error"),  # too long: its connections are closed, which ends it
        ("b'\\1\\1x' * 10000", "error"),  # too many parts
        ("b'\\0\\x09<IDS|MSG>'", "timeout"),
        ("b'\\4\\1x' * 1000", "timeout"),
        ("b'\\1\\x09<IDS|MSG>' + b'\\1\\1x' * 4 + b'\\0\\1{'", "timeout"),
    ],
)
def test_a_kernel_that_breaks_rules(
    client: Client, workspace: Path, outside: Path, monkeypatch: pytest.MonkeyPatch, data: str, status: str
) -> None:
    """What it sends is ignored, so that no cell ends; or its connections are closed."""
    (outside / "hostile.py").write_text(HOSTILE.replace("{data}", data))
    spec(outside, "hostile", argv=[shutil.which("python3"), str(outside / "hostile.py"), "{connection_file}"])
    monkeypatch.setenv("JUPYTER_PATH", str(outside))
    with client.session(workspace=workspace, language="jupyter:hostile") as s:
        for _ in range(2):
            out = s.run("1", timeout_ms=250 if status == "timeout" else 60_000)
            assert out.status == status, out
            if status == "error":
                assert out.error["ename"] == "KernelEnded", out


def test_the_list_of_languages_starts_no_kernel_of_jupyter(
    run_cellgate: Callable[..., subprocess.CompletedProcess[str]], outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files may be those of cells; nor does the list wait for a pipe, or write what a terminal obeys."""
    monkeypatch.setenv("JUPYTER_PATH", str(outside))
    spec(outside, "own", argv=["/usr/bin/touch", str(outside / "started")], env={"A": "\x1b[2J"})
    (outside / "kernels/pipe").mkdir()
    os.mkfifo(outside / "kernels/pipe/kernel.json")
    r = run_cellgate("runtimes")
    assert "jupyter:own /usr/bin/touch A=\\x1b[2J, no tools\n" in r.stdout
    assert "jupyter:pipe not available: " in r.stdout
    assert not (outside / "started").exists()


def test_the_audit_log_has_the_kernelspec(
    workspace: Path, outside: Path, prefix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(outside))
    with Client(log_level=0, no_spare=1) as c:
        c.session(workspace=workspace, audit="strict", language="jupyter:python3").close()
    shown = subprocess.run([prefix / "bin/cellgate", "audit", "--json"], capture_output=True, text=True, check=True)
    opened = json.loads(shown.stdout.splitlines()[1])
    assert opened["kind"] == "session.opened" and opened["body"]["language"] == "jupyter:python3"
    assert opened["body"]["kernelspec"].endswith("/kernels/python3/kernel.json")
