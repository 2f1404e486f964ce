"""The tools: what the agent sees of cells, calls of MCP tools, servers and packages."""

import base64
import contextlib
import http.server
import os
import signal
import socket
import tarfile
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kernel_environment import BUILT_IN
from mcp_serve.helpers import Raw, children_named, text_of

Serve = Callable[..., Raw]
FAKE = str(Path(__file__).with_name("fake_server.py"))
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def started(serve: Serve, *args: str | Path, **capabilities: object) -> Raw:
    server = serve(*args)
    server.initialize(**capabilities)
    return server


def cell(server: Raw, code: str, **arguments: object) -> dict[str, Any]:
    return server.result(server.call("execute_ipython_cell", code=code, **arguments))


def ok(server: Raw, code: str, **arguments: object) -> str:
    return server.ask("execute_ipython_cell", code=code, **arguments)


def fails(server: Raw, code: str, **arguments: object) -> str:
    return server.fails("execute_ipython_cell", code=code, **arguments)


# ---------------------------------------------------------------------- what the client sees


def test_files_that_a_cell_made_or_changed(serve: Serve, workspace: Path) -> None:
    server = started(serve, "--artifacts")
    text = ok(server, "open('a\\n- b', 'w').write('123')")
    assert text == f"3\n\nFiles made or changed:\n\n- {workspace}/a\\x0a- b (3 bytes)"
    assert ok(server, "1 + 1") == "2"
    assert ok(started(serve), "open('b', 'w').write('123')") == "3"


IPYBOX: dict[str, dict[str, tuple[str, object, bool]]] = {
    "execute_ipython_cell": {
        "code": ("string", None, True),
        "timeout": ("number", 120, False),
        "max_output_chars": ("integer", 5000, False),
    },
    "register_mcp_server": {"server_name": ("string", None, True), "server_params": ("object", None, True)},
    "install_package": {
        "package_name": ("string", None, True),
        "language": ("string", None, False),  # these two are cellgate's own, for npm
        "scripts": ("boolean", False, False),
    },
    "uninstall_package": {"package_name": ("string", None, True)},
    "reset": {},
    "read_output": {"start": ("integer", 0, False), "max_output_chars": ("integer", 5000, False)},
}


def test_tools_have_the_names_parameters_and_defaults_of_ipybox(serve: Serve) -> None:
    server = started(serve)
    tools = {tool["name"]: tool for tool in server.result(server.request("tools/list"))["tools"]}
    schemas = {name: tools[name]["inputSchema"] for name in IPYBOX}
    for name, schema in schemas.items():
        found = {
            p: (s["type"], s.get("default"), p in schema.get("required", [])) for p, s in schema["properties"].items()
        }
        assert found == IPYBOX[name]
    assert list(tools) == [*IPYBOX, "start_cell", "cell_status", "cell_result", "cancel_cell", "send_input"]
    for tool in tools.values():
        assert tool["title"] and tool["description"]
        assert {"readOnlyHint", "destructiveHint", "openWorldHint"} <= set(tool["annotations"])
        assert all(s.get("description") for s in tool["inputSchema"]["properties"].values())


def test_state_is_kept_and_reset_clears_it(serve: Serve, workspace: Path) -> None:
    server = started(serve)
    assert ok(server, "import math\nx = 6\nopen('file', 'w').write('kept')") == "4"
    assert ok(server, "x * 7") == "42"
    assert ok(server, "import asyncio\nawait asyncio.sleep(0, 'top level')") == "'top level'"
    server.ask("reset")
    assert "NameError" in fails(server, "x")
    assert ok(server, "open('file').read()") == "'kept'" == repr((workspace / "file").read_text())


def test_output_comes_in_order(serve: Serve) -> None:
    code = (
        "import sys, os\nprint('one')\nprint('two', file=sys.stderr)\nprint('three', end='')\n"
        "display({'a': 1})\nos.system('echo four')\nprint('\\u00fc\\U0001f600\\u2028')\n'result'"
    )
    server = started(serve)
    assert ok(server, code) == "one\ntwo\nthree\n{'a': 1}\nfour\n\u00fc\U0001f600\u2028\n'result'"
    assert ok(server, "pass") == "(no output)"
    text = fails(server, "print('before')\n1/0")
    assert text.startswith("before\n") and "ZeroDivisionError: division by zero" in text and "\x1b" not in text
    assert "SyntaxError" in fails(server, "1 +")


def test_the_sandbox_is_on_unless_told(serve: Serve, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    server = started(serve, "--env", "GIVEN=yes")
    cell(server, f"open({str(outside)!r}, 'w').close()")  # its /tmp is another one
    assert "Read-only file system" in fails(server, "open('/usr/new', 'w')")
    assert ok(server, "import os; os.environ.get('GIVEN'), os.environ.get('XDG_CACHE_HOME')") == "('yes', None)"
    assert not outside.exists()
    ok(started(serve, "--no-sandbox"), f"open({str(outside)!r}, 'w').close()")
    assert outside.exists()


def test_variables_that_are_secrets_are_not_shown(serve: Serve) -> None:
    secret = "s3cret/value+12"
    code = (
        "import os, base64\nt = os.environ['API_TOKEN']\nprint('a' + t + 'b', base64.b64encode(t.encode()).decode(), '\\0', t)\n"
        "print(os.environ['MODE'], os.environ['SHORT_KEY'])\nt"
    )
    server = started(serve, "--env", f"API_TOKEN={secret}", "--env", "MODE=production", "--env", "SHORT_KEY=abc")
    assert ok(server, code) == "a***b *** \0 ***\nproduction abc\n'***'"
    assert "***" in fails(server, "raise ValueError(t)")
    assert "Truncated" not in ok(server, "print('x' * 10_000, t)")
    page = server.ask("read_output", start=9_990)
    assert page.endswith("***") and secret not in page
    assert ok(server, "len(t)") == str(len(secret))


# ---------------------------------------------------------------------- long output


def test_long_output_is_cut_in_the_middle_and_says_so(serve: Serve) -> None:
    server = started(serve)
    assert ok(server, "print('x' * 4999)") == "x" * 4999
    text = ok(server, "print('H' * 3000 + 'M' * 10000 + 'T' * 3000)")
    head, notice, tail = text.partition("[Output truncated: exceeded 5000 character limit, 11001 of 16001 characters")
    assert notice and "read_output(start=2500)" in tail
    assert head == "H" * 2500 + "\n" and tail.endswith("]\n" + "T" * 2499)
    assert len(ok(server, "print('x' * 4000)\nprint('y' * 4000)", max_output_chars=100_000)) == 8001
    # The note is 170 characters long: it never takes the place of fewer.
    for n, cut in ((5200, False), (5201, True)):
        text = ok(server, f"print('Z' * {n - 1})")
        assert ("Output truncated" in text) is cut and text.count("Z") == (5000 if cut else n) - 1
    text = ok(server, "print('\\U0001f600' * 1000)", max_output_chars=10)
    assert text.count("\U0001f600") == 9
    assert ok(server, "print('secret')", max_output_chars=0) == (
        "[Output truncated: exceeded 0 character limit, 7 of 7 characters are left out here."
        " read_output(start=0) returns them; better print just the part you need]"
    )


def test_output_that_was_cut_is_read_in_pages(serve: Serve) -> None:
    whole = "".join(f"{i}\u00fc\U0001f600\n" for i in range(3000))
    server = started(serve)
    assert server.ask("read_output") == "No output of a cell was cut."
    ok(server, "for i in range(3000): print(f'{i}\u00fc\U0001f600')")
    ok(server, "1")
    read, start = "", 0
    while True:
        text, _, more = server.ask("read_output", start=start).partition("\n\n[Characters ")
        read += whole[len(read) :][: len(text) + 1] if more and whole[len(read) :].startswith(text) else text
        if not more:
            break
        start = int(more.partition("start=")[2].partition(")")[0])
        read = read[:start]
    assert read == whole.rstrip("\n")
    assert server.ask("read_output", start=7, max_output_chars=4) == (
        f"{whole[7:11].rstrip()}\n\n[Characters 7 to 11 of {len(whole)}; read_output(start=11) returns more]"
    )
    assert server.ask("read_output", start=10**9) == "There is no more output."


def test_a_flood_of_output_stays_bounded(serve: Serve) -> None:
    code = "line = 'z' * 1023\nfor i in range(50_000):\n    print(line)\nprint('the end')"
    server = started(serve)
    text = text_of(server.result(server.call("execute_ipython_cell", code=code), 60))
    assert len(text) < 6000 and text.endswith("the end") and "of 51200008 characters" in text


# ---------------------------------------------------------------------- images


def show(mime: str, data: bytes | str) -> str:
    text = base64.b64encode(data).decode() if isinstance(data, bytes) else data
    return f"from IPython.display import display\ndisplay({{{mime!r}: {text!r}, 'text/plain': '<Figure>'}}, raw=True)"


def test_images_are_blocks_and_files(serve: Serve, workspace: Path) -> None:
    server = started(serve)
    result = cell(server, "print('text')\n" + show("image/png", PNG))
    assert [b["type"] for b in result["content"]] == ["text", "image"]
    image = result["content"][1]
    assert image["mimeType"] == "image/png" and base64.b64decode(image["data"]) == PNG
    path = workspace / "images/cell1-1.png"
    assert text_of(result) == f"text\n\nGenerated images:\n\n- [cell1-1]({path})"
    assert path.read_bytes() == PNG
    jpeg = b"\xff\xd8\xff\xe0" + b"x" * 50
    result = cell(server, show("image/jpeg", jpeg))
    assert result["content"][1]["mimeType"] == "image/jpeg"
    assert (workspace / "images/cell2-1.jpg").read_bytes() == jpeg
    result = cell(server, show("image/svg+xml", "<svg/>"))
    assert [b["type"] for b in result["content"]] == ["text"] and "cell3-1.svg" in text_of(result)
    assert (workspace / "images/cell3-1.svg").read_text() == "<svg/>"


def test_only_real_images_become_blocks(serve: Serve) -> None:
    server = started(serve)
    for data in ("not base64!", base64.b64encode(b"no image at all").decode(), ""):
        assert [b["type"] for b in cell(server, show("image/png", data))["content"]] == ["text"]
    many = show("image/png", PNG) + "\nfor _ in range(24): display({'image/png': _p}, raw=True)"
    result = cell(server, f"_p = {base64.b64encode(PNG).decode()!r}\n" + many)
    assert [b["type"] for b in result["content"]].count("image") == 20
    assert text_of(result).count("too many") == 5


def test_the_folder_for_images_can_be_chosen_and_no_link_leads_out(serve: Serve, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    chosen = started(serve, "--images", tmp_path / "pictures")
    assert "pictures/cell1-1.png" in ok(chosen, show("image/png", PNG))
    link = f"import os; os.symlink({str(outside)!r}, 'images')\n"
    text = ok(started(serve), link + show("image/png", PNG))
    assert "not saved" in text and "symbolic link" in text
    assert (tmp_path / "pictures/cell1-1.png").exists() and not list(outside.iterdir())


@pytest.mark.own_supervisor
def test_a_lost_supervisor_is_replaced(serve: Serve, mcp_file: Path) -> None:
    server = started(serve, "--mcp", mcp_file, "--approve", "fake.*")
    assert ok(server, "x = 1; x") == "1"
    (supervisor,) = children_named(server.process.pid, "cellgate-supervisor")
    os.kill(supervisor, signal.SIGKILL)
    with contextlib.suppress(FileNotFoundError):
        while Path(f"/proc/{supervisor}/cmdline").read_bytes():  # a zombie has none
            time.sleep(0.02)
    text = fails(server, "x")
    if "NameError" not in text:  # it was noticed during the call rather than before it
        text = fails(server, "x")
    assert "NameError" in text
    assert "fake" in ok(server, "from mcptools.fake import echo; print(echo.run(text='fake'))")


# ---------------------------------------------------------------------- calls of MCP tools

MARK = "from mcptools.fake import leave_mark\nleave_mark.run(text='{}')"
CATCH = (
    "from cellgate_tools import RejectedError\n"
    "try:\n    leave_mark.run(text='x')\nexcept RejectedError as e:\n    print('caught', e)"
)


def test_without_a_rule_calls_are_refused_and_told_how_to_allow_them(serve: Serve, mcp_file: Path, mark: Path) -> None:
    server = started(serve, "--mcp", mcp_file)
    text = fails(server, MARK.format("no"))
    assert "RejectedError" in text
    assert "start cellgate mcp serve with --approve 'fake.leave_mark'" in text
    assert "caught" in ok(server, CATCH)
    assert not mark.exists()


def test_rules_allow_and_refuse(serve: Serve, mcp_file: Path, mark: Path) -> None:
    server = serve("--mcp", mcp_file, "--approve", "fake.ec*")
    assert "already: fake." in server.initialize()["instructions"]
    assert "echo: hi" in ok(server, "from mcptools.fake import echo\nprint(echo.run(text='hi'))")
    assert "fake.leave_mark" in fails(server, MARK.format("no"))
    server = started(serve, "--mcp", mcp_file, "--approve", "all", "--approve", "!fake.leave_mark")
    assert "!fake.leave_mark" in fails(server, MARK.format("no"))
    ok(started(serve, "--mcp", mcp_file, "--approve", "all"), MARK.format("yes"))
    assert mark.read_text() == "yes\n"


def asked(server: Raw, *answers: dict[str, Any], tool: str = "execute_ipython_cell", **arguments: object) -> tuple[list[dict], str]:
    """Makes a call and answers its questions. Returns what they asked, and the call's text."""
    call, questions = server.call(tool, **arguments), []
    for answer in answers:
        questions.append(server.receive())
        assert questions[-1]["method"] == "elicitation/create"
        server.send({"jsonrpc": "2.0", "id": questions[-1]["id"], **answer})
    return [q["params"] for q in questions], text_of(server.result(call, 60))


def choice(decision: str, **more: str) -> dict[str, Any]:
    return {"result": {"action": "accept", "content": {"decision": decision, **more}}}


def test_always_means_this_tool_only(serve: Serve, mcp_file: Path, mark: Path) -> None:
    server = started(serve, "--mcp", mcp_file, "--approve", "ask", elicitation={})
    code = "from mcptools.fake import leave_mark\nfor i in range(5): leave_mark.run(text=str(i))"
    asked(server, choice("approve this tool from now on"), code=code)
    assert mark.read_text() == "0\n1\n2\n3\n4\n"
    code = "from mcptools.fake import echo\necho.run(text='x')"
    assert "RejectedError" in asked(server, choice("reject"), code=code)[1]


NO_YES: list[tuple[dict[str, Any], str]] = [
    ({"result": {"action": "decline"}}, "the user rejected it"),
    ({"result": {"action": "cancel"}}, "no answer"),
    ({"result": {"action": "accept", "content": {}}}, "rejected"),
    (choice("Approve"), "rejected"),
    (choice("reject", reason="not today"), "not today"),
    ({"error": {"code": -32603, "message": "broken"}}, "could not ask"),
]


def test_anything_but_a_clear_yes_is_a_no(serve: Serve, mcp_file: Path, mark: Path) -> None:
    server = started(serve, "--mcp", mcp_file, "--approve", "ask", elicitation={})
    for answer, words in NO_YES:
        text = asked(server, answer, code=MARK.format("no"))[1]
        assert "RejectedError" in text and words in text and not mark.exists(), answer


# ---------------------------------------------------------------------- register_mcp_server

PARAMS = {"command": "/usr/bin/python3", "args": [FAKE]}


def params(**changes: object) -> dict[str, object]:
    return {"server_name": "mine", "server_params": {**PARAMS, **changes}}


def test_registering_needs_a_rule(serve: Serve, tmp_path: Path) -> None:
    server = started(serve, "--approve", "mine.*")
    started_file = tmp_path / "started"
    text = server.fails("register_mcp_server", **params(command="touch", args=[str(started_file)]))
    assert "--approve 'cellgate.register_mcp_server'" in text
    assert "ModuleNotFoundError" in fails(server, "import mcptools.mine")
    assert not started_file.exists()


def test_a_registered_server_can_be_used_and_survives_reset(serve: Serve) -> None:
    server = started(serve, "--approve", "cellgate.register_mcp_server", "--approve", "mine.*")
    assert "/no/such/program" in server.fails("register_mcp_server", **params(command="/no/such/program"))
    text = server.ask("register_mcp_server", **params())
    assert "from mcptools.mine import" in text and "echo" in text and "leave_mark" in text
    use = "from mcptools.mine import echo\nprint(echo.run(text='hi'))"
    assert "echo: hi" in ok(server, use)
    server.ask("reset")
    assert "echo: hi" in ok(server, use)
    server.ask("register_mcp_server", **params())
    assert "echo: hi" in ok(server, use)


def test_the_person_is_asked_about_registering(serve: Serve) -> None:
    server = started(serve, "--approve", "ask", "--approve", "mine.*", elicitation={})
    (question,), text = asked(server, choice("reject"), tool="register_mcp_server", **params())
    assert "the user rejected it" in text
    assert "register_mcp_server" in question["message"] and "fake_server.py" in question["message"]
    assert question["requestedSchema"]["properties"]["decision"]["enum"] == ["approve", "reject"]
    text = asked(server, choice("approve"), tool="register_mcp_server", **params())[1]
    assert "from mcptools.mine import" in text


# ---------------------------------------------------------------------- install_package


BACKEND = """
import os, socket, sys, zipfile

def tried(what):
    try:
        what()
    except Exception as e:
        return type(e).__name__
    return "did it"

def build_wheel(folder, config_settings=None, metadata_directory=None):
    found = {
        "outside": tried(lambda: open(OUTSIDE, "w")),
        "home": tried(lambda: open(HOME, "w")),
        "network": tried(lambda: socket.create_connection(("127.0.0.2", PORT), 5)),
        "variables": sorted(n for n in os.environ if "TOKEN" in n),
    }
    name = "cgsource-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as z:
        z.writestr("cgsource.py", f"found = {found!r}")
        z.writestr("cgsource-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: cgsource\\nVersion: 1.0\\n")
        z.writestr("cgsource-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        z.writestr("cgsource-1.0.dist-info/RECORD", "")
    return name
"""
PROJECT = """[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "cgsource"
version = "1.0"
"""


WHEEL = "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def make_wheel(folder: Path, name: str, version: str, files: dict[str, str], record: str = "") -> None:
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as z:
        info = f"{name}-{version}.dist-info"
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        own = {f"{info}/METADATA": metadata, f"{info}/WHEEL": WHEEL, f"{info}/RECORD": record}
        for path, text in {**files, **own}.items():
            z.writestr(path, text)


@pytest.fixture
def index(repo: Path, tmp_path: Path, environment: dict[str, str]) -> Iterator[Path]:
    """A folder that pip takes for the package index: a wheel, and a source package that tries things when it is built.

    Not in /tmp, which is another one in the sandbox.
    """
    with (
        tempfile.TemporaryDirectory(dir=repo / "build", prefix="index-") as name,
        socket.create_server(("127.0.0.2", 0)) as listener,  # which a build outside of a sandbox would reach
    ):
        folder = Path(name)
        folder.chmod(0o755)
        for version in ("1.0", "2.0"):
            make_wheel(folder, "cgwheel", version, {"cgwheel.py": f"version = {version!r}\n"})
        source = tmp_path / "cgsource-1.0"
        source.mkdir()
        places = f"OUTSIDE = {str(folder / 'built')!r}\nHOME = {str(tmp_path / 'built')!r}\n"
        places += f"PORT = {listener.getsockname()[1]}\n"
        (source / "backend.py").write_text(places + BACKEND)
        (source / "pyproject.toml").write_text(PROJECT)
        (source / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: cgsource\nVersion: 1.0\n")
        with tarfile.open(folder / "cgsource-1.0.tar.gz", "w:gz") as t:
            t.add(source, "cgsource-1.0")
        environment.update(
            PIP_NO_INDEX="1", PIP_FIND_LINKS=str(folder), PIP_USER="1", PIP_TARGET=str(tmp_path / "elsewhere")
        )
        yield folder


def install(server: Raw, name: str, **more: object) -> str:
    """The text of an installation that succeeds."""
    result = server.result(server.call("install_package", package_name=name, **more), 60)
    assert not result["isError"], text_of(result)
    return text_of(result)


def test_installing_needs_a_rule(serve: Serve, index: Path) -> None:
    server = started(serve, "--approve", "other.*")
    assert "--approve 'cellgate.install_package'" in server.fails("install_package", package_name="cgwheel")
    assert "ModuleNotFoundError" in fails(server, "import cgwheel")


@pytest.mark.parametrize("environment_of_kernels", [None, BUILT_IN])
def test_packages_for_later_sessions_are_refused(
    serve: Serve, index: Path, environment_of_kernels: Path | None
) -> None:
    """Before anybody is asked, and whatever rule there is; without keep the same call is right."""
    before = sorted(BUILT_IN.rglob("cgwheel*"))
    words: list[str | Path] = []
    where = "cellgate env create"
    if environment_of_kernels:
        words, where = ["--kernel-env", environment_of_kernels], f"cellgate env add {BUILT_IN.resolve()}"
    server = started(serve, "--approve", "all", "--approve", "cellgate.install_package", *words)
    for keep, why in ((True, "keep: true is refused"), (True, where), ("yes", "true or false"), (1, "true or false")):
        assert why in server.fails("install_package", package_name="cgwheel==1.0", keep=keep)
    assert "ModuleNotFoundError" in fails(server, "import cgwheel")
    install(server, "cgwheel==1.0", keep=False)
    assert sorted(BUILT_IN.rglob("cgwheel*")) == before == []


def test_a_wheel_is_installed_without_restart_and_survives_reset(serve: Serve, index: Path, tmp_path: Path) -> None:
    server = started(serve, "--approve", "cellgate.install_package")
    assert "ModuleNotFoundError" in fails(server, "x = 1\nimport cgwheel")
    assert "Successfully installed cgwheel-1.0" in install(server, " cgwheel == 1.0 ")
    assert ok(server, "import cgwheel; x, cgwheel.version") == "(1, '1.0')"
    server.ask("reset")
    assert ok(server, "import cgwheel; cgwheel.version") == "'1.0'"
    install(server, "cgwheel>=1.0,!=1.5")
    server.ask("reset")
    assert ok(server, "import cgwheel; cgwheel.version") == "'2.0'"
    assert "Read-only file system" in fails(server, "open(cgwheel.__file__, 'a')")
    assert not (tmp_path / "elsewhere").exists()


def test_a_package_is_removed_with_no_more_than_its_own_files(serve: Serve, index: Path, tmp_path: Path) -> None:
    """What a wheel has recorded is foreign: nothing outside of the session's folder is removed for it."""
    outside = tmp_path / "outside"
    outside.write_text("")
    info = "cghostile-1.0.dist-info"
    rows = ["cghostile/__init__.py", f"{info}/METADATA", f"{info}/WHEEL", f"{info}/RECORD", str(outside)]
    record = "".join(f"{row},,\n" for row in [*rows, f"{'../' * 20}{outside}"])
    make_wheel(index, "cghostile", "1.0", {"cghostile/__init__.py": ""}, record)
    server = started(serve, "--approve", "cellgate.install_package")
    install(server, "cgwheel==1.0 cghostile")
    assert ok(server, "import cgwheel, cghostile; cgwheel.version") == "'1.0'"
    for wrong in ("no-such-package", "pip", "cgwheel==1.0", "../x", "", "--help"):
        assert "not installed in this session" in server.fails("uninstall_package", package_name=wrong)
    assert "Removed CGHostile" in server.ask("uninstall_package", package_name="CGHostile")
    server.ask("reset")
    assert "ModuleNotFoundError" in fails(server, "import cghostile")
    assert ok(server, "import cgwheel; cgwheel.version") == "'1.0'"
    server.ask("uninstall_package", package_name="cgwheel")
    server.ask("reset")
    assert "ModuleNotFoundError" in fails(server, "import cgwheel")
    assert outside.exists()


def test_source_packages_are_built_in_a_sandbox(
    serve: Serve, index: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    environment["GITHUB_TOKEN"] = "secret"
    server = started(serve, "--approve", "all")
    install(server, "cgwheel cgsource")
    assert ok(server, "import cgwheel, cgsource; print(cgsource.found)") == (
        "{'outside': 'OSError', 'home': 'FileNotFoundError', 'network': 'ConnectionRefusedError', 'variables': []}"
    )
    assert "No matching distribution" in server.fails("install_package", package_name="no-such-package")
    assert not (tmp_path / "built").exists() and not (index / "built").exists()


@contextlib.contextmanager
def web_server(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Serves a folder. Its address, and the paths of requests."""
    requests: list[str] = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            requests.append(self.path)

    # Not 127.0.0.1, which in a sandbox is its own.
    with http.server.ThreadingHTTPServer(("127.0.0.2", 0), partial(Handler, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.2:{server.server_port}", requests
        server.shutdown()


def test_nothing_is_built_where_pip_has_a_password(serve: Serve, index: Path, environment: dict[str, str]) -> None:
    environment["PIP_EXTRA_INDEX_URL"] = "https://user:secret@index.example.org/simple"
    with web_server(index) as (address, _):
        url = f"http://{address}/cgsource-1.0.tar.gz"
        server = started(serve, "--approve", "all")
        for name in ("cgsource", url, f"cgsource@{url}"):
            text = server.fails("install_package", package_name=name)
            assert "since the settings of pip have a password" in text
        install(server, "cgwheel")


def test_an_index_is_reached_and_no_other_host(serve: Serve, index: Path, environment: dict[str, str]) -> None:
    simple = index / "cgwheel"
    simple.mkdir()
    wheel = "cgwheel-1.0-py3-none-any.whl"
    (simple / "index.html").write_text(f'<a href="../{wheel}">{wheel}</a>')
    del environment["PIP_NO_INDEX"], environment["PIP_FIND_LINKS"]
    environment["PIP_RETRIES"] = "0"  # of what is refused
    with web_server(index.parent) as (address, requests):
        environment["PIP_INDEX_URL"] = f"http://{address}/{index.name}"
        server = started(serve, "--approve", "all")
        install(server, "cgwheel")
        assert requests
        # Its name was approved, but does not exist.
        server.fails("install_package", package_name=f"cgwheel@https://other.example.org/{wheel}")
        environment["PIP_INDEX_URL"] = "http://index.example.org"
        server = started(serve, "--approve", "all")
        (simple / "index.html").write_text("")
        server.fails("install_package", package_name="cgwheel")
        install(server, f"http://{address}/{index.name}/{wheel}")


NO_REQUIREMENTS = [
    *("", " ", "-r/etc/passwd", "--index-url=http://x", "-e .", ".", "..", "./cgwheel", "/tmp/x", "a/b", "a\\b"),
    *("file:x", "file:///x.whl", "git+ssh://example.org/x.git", "git+file:///x", "x @ file:///x.whl", "ftp://example.org/x"),
    *("https://user:pw@example.org/x.whl", "https://example.org@evil.example/x.whl", "https:///x.whl"),
    *("cgwheel; python_version > '3'", "cgwheel.whl", "cgwheel.tar.gz", "_x", "cgwheel cgsource.whl"),
    *("cgwheel --pre", "cgwheel==1.0 --pre", "$(id)", "x" * 3000, "caf\u00e9", "cgwheel #x", "a " * 40),
]


def test_options_paths_and_passwords_are_refused(serve: Serve, index: Path) -> None:
    server = started(serve, "--approve", "all")
    for name in NO_REQUIREMENTS:
        text = server.fails("install_package", package_name=name)
        assert "package_name must be" in text or "longer" in text, name


FONTS = """
import json, os, pathlib
folder = pathlib.Path(os.path.expanduser("~/.cache/matplotlib"))
made = not (folder / "fontlist-v9.json").exists()
if made:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "fontlist-v9.json").write_text(json.dumps({"files": os.listdir("."), "root": os.access("/etc", os.W_OK)}))
"""


def test_fonts_are_listed_once_by_no_cell_and_in_a_sandbox(serve: Serve, index: Path) -> None:
    init = "import os\ndef get_cachedir(): return os.path.expanduser('~/.cache/matplotlib')"
    files = {"matplotlib/__init__.py": init, "matplotlib/font_manager.py": FONTS}
    make_wheel(index, "matplotlib", "1.0", files)
    code = (
        "import matplotlib.font_manager as f, pathlib\npath = f.folder / 'fontlist-v9.json'\n"
        "print(f.made, path.read_text())\n"
        "try: path.write_text('poison')\nexcept OSError as e: print(e.strerror)\n"
        "path.unlink()\n_ = path.write_text('poison')"
    )
    server = started(serve, "--approve", "cellgate.install_package")
    ok(server, "open('mine', 'w').close()")  # the workspace of cells, which the list is not made in
    install(server, "matplotlib")
    for _ in range(2):
        lines = [line for line in ok(server, code).splitlines() if line and "the sandbox refused writing" not in line]
        assert lines == ['False {"files": [], "root": false}', "Read-only file system"]
        server.ask("reset")
