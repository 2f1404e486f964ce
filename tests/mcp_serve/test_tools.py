"""The tools, through the client of the official Python SDK."""

import asyncio
import base64
import contextlib
import http.server
import json
import os
import signal
import socket
import tarfile
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kernel_environment import BUILT_IN
from mcp import ClientSession
from mcp.types import ElicitRequestParams, ElicitResult, ErrorData
from mcp_serve.helpers import children_named, text_of

Sdk = Callable[..., contextlib.AbstractAsyncContextManager[ClientSession]]
FAKE = str(Path(__file__).with_name("fake_server.py"))
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture
def run() -> Callable[..., Any]:
    """Runs a coroutine; no test may hang."""

    def go(coroutine: Any, seconds: float = 60) -> Any:
        return asyncio.run(asyncio.wait_for(coroutine, seconds))

    return go


async def cell(session: ClientSession, code: str, **arguments: object) -> Any:
    return await session.call_tool("execute_ipython_cell", {"code": code, **arguments})


async def ok(session: ClientSession, code: str, **arguments: object) -> str:
    result = await cell(session, code, **arguments)
    assert not result.is_error, text_of(result)
    return text_of(result)


async def fails(session: ClientSession, code: str, **arguments: object) -> str:
    result = await cell(session, code, **arguments)
    assert result.is_error, text_of(result)
    return text_of(result)


# ---------------------------------------------------------------------- what the client sees


def test_files_that_a_cell_made_or_changed(sdk: Sdk, run: Callable, workspace: Path) -> None:
    async def main() -> None:
        async with sdk("--artifacts") as session:
            text = await ok(session, "open('a\\n- b', 'w').write('123')")
            assert text == f"3\n\nFiles made or changed:\n\n- {workspace}/a\\x0a- b (3 bytes)"
            assert await ok(session, "1 + 1") == "2"
        async with sdk() as session:
            assert await ok(session, "open('b', 'w').write('123')") == "3"

    run(main())


def test_tools_have_the_names_parameters_and_defaults_of_ipybox(sdk: Sdk, run: Callable) -> None:
    async def main() -> None:
        async with sdk() as session:
            every = {tool.name: tool for tool in (await session.list_tools()).tools}
            tools = dict(list(every.items())[:6])
            schemas = {
                name: {
                    p: (s["type"], s.get("default"), p in tool.input_schema.get("required", []))
                    for p, s in tool.input_schema["properties"].items()
                }
                for name, tool in tools.items()
            }
            assert schemas == {
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
            assert list(every) == [*tools, "start_cell", "cell_status", "cell_result", "cancel_cell", "send_input"]
            for tool in every.values():
                assert tool.title and tool.description
                hints = tool.annotations
                assert hints and None not in (hints.read_only_hint, hints.destructive_hint, hints.open_world_hint)
                assert all(s.get("description") for s in tool.input_schema["properties"].values())

    run(main())


def test_state_is_kept_and_reset_clears_it(sdk: Sdk, run: Callable, workspace: Path) -> None:
    async def main() -> None:
        async with sdk() as session:
            assert await ok(session, "import math\nx = 6\nopen('file', 'w').write('kept')") == "4"
            assert await ok(session, "x * 7") == "42"
            assert await ok(session, "import asyncio\nawait asyncio.sleep(0, 'top level')") == "'top level'"
            assert not (await session.call_tool("reset", {})).is_error
            assert "NameError" in await fails(session, "x")
            assert await ok(session, "open('file').read()") == "'kept'"

    run(main())
    assert (workspace / "file").read_text() == "kept"


def test_output_comes_in_order(sdk: Sdk, run: Callable) -> None:
    code = (
        "import sys, os\nprint('one')\nprint('two', file=sys.stderr)\nprint('three', end='')\n"
        "display({'a': 1})\nos.system('echo four')\nprint('\\u00fc\\U0001f600\\u2028')\n'result'"
    )

    async def main() -> None:
        async with sdk() as session:
            assert await ok(session, code) == "one\ntwo\nthree\n{'a': 1}\nfour\n\u00fc\U0001f600\u2028\n'result'"
            assert await ok(session, "pass") == "(no output)"
            text = await fails(session, "print('before')\n1/0")
            assert text.startswith("before\n") and "ZeroDivisionError: division by zero" in text and "\x1b" not in text
            assert "SyntaxError" in await fails(session, "1 +")

    run(main())


def test_the_sandbox_is_on_unless_told(sdk: Sdk, run: Callable, tmp_path: Path) -> None:
    outside = tmp_path / "outside"

    async def main() -> None:
        async with sdk("--env", "GIVEN=yes") as session:
            await cell(session, f"open({str(outside)!r}, 'w').close()")  # its /tmp is another one
            assert "Read-only file system" in await fails(session, "open('/usr/new', 'w')")
            assert (
                await ok(session, "import os; os.environ.get('GIVEN'), os.environ.get('XDG_CACHE_HOME')")
                == "('yes', None)"
            )
        assert not outside.exists()
        async with sdk("--no-sandbox") as session:
            await ok(session, f"open({str(outside)!r}, 'w').close()")
        assert outside.exists()

    run(main())


def test_variables_that_are_secrets_are_not_shown(sdk: Sdk, run: Callable) -> None:
    secret = "s3cret/value+12"
    code = (
        "import os, base64\nt = os.environ['API_TOKEN']\nprint('a' + t + 'b', base64.b64encode(t.encode()).decode(), '\\0', t)\n"
        "print(os.environ['MODE'], os.environ['SHORT_KEY'])\nt"
    )

    async def main() -> None:
        async with sdk("--env", f"API_TOKEN={secret}", "--env", "MODE=production", "--env", "SHORT_KEY=abc") as session:
            assert await ok(session, code) == "a***b *** \0 ***\nproduction abc\n'***'"
            assert "***" in await fails(session, "raise ValueError(t)")
            assert "Truncated" not in await ok(session, "print('x' * 10_000, t)")
            page = text_of(await session.call_tool("read_output", {"start": 9_990}))
            assert page.endswith("***") and secret not in page
            assert await ok(session, "len(t)") == str(len(secret))

    run(main())


# ---------------------------------------------------------------------- long output


def test_long_output_is_cut_in_the_middle_and_says_so(sdk: Sdk, run: Callable) -> None:
    async def main() -> None:
        async with sdk() as session:
            assert await ok(session, "print('x' * 4999)") == "x" * 4999
            text = await ok(session, "print('H' * 3000 + 'M' * 10000 + 'T' * 3000)")
            head, notice, tail = text.partition(
                "[Output truncated: exceeded 5000 character limit, 11001 of 16001 characters"
            )
            assert notice and "read_output(start=2500)" in tail
            assert head == "H" * 2500 + "\n" and tail.endswith("]\n" + "T" * 2499)
            assert len(await ok(session, "print('x' * 4000)\nprint('y' * 4000)", max_output_chars=100_000)) == 8001
            # The note is 170 characters long: it never takes the place of fewer.
            for n, cut in ((5200, False), (5201, True)):
                text = await ok(session, f"print('Z' * {n - 1})")
                assert ("Output truncated" in text) is cut and text.count("Z") == (5000 if cut else n) - 1
            text = await ok(session, "print('\\U0001f600' * 1000)", max_output_chars=10)
            assert text.count("\U0001f600") == 9
            assert (await ok(session, "print('secret')", max_output_chars=0)) == (
                "[Output truncated: exceeded 0 character limit, 7 of 7 characters are left out here."
                " read_output(start=0) returns them; better print just the part you need]"
            )

    run(main())


def test_output_that_was_cut_is_read_in_pages(sdk: Sdk, run: Callable) -> None:
    whole = "".join(f"{i}\u00fc\U0001f600\n" for i in range(3000))

    async def page(session: ClientSession, **arguments: int) -> str:
        return text_of(await session.call_tool("read_output", arguments))

    async def main() -> None:
        async with sdk() as session:
            assert await page(session) == "No output of a cell was cut."
            await ok(session, "for i in range(3000): print(f'{i}\u00fc\U0001f600')")
            await ok(session, "1")
            read, start = "", 0
            while True:
                text, _, more = (await page(session, start=start)).partition("\n\n[Characters ")
                read += whole[len(read) :][: len(text) + 1] if more and whole[len(read) :].startswith(text) else text
                if not more:
                    break
                start = int(more.partition("start=")[2].partition(")")[0])
                read = read[:start]
            assert read == whole.rstrip("\n")
            assert await page(session, start=7, max_output_chars=4) == (
                f"{whole[7:11].rstrip()}\n\n[Characters 7 to 11 of {len(whole)}; read_output(start=11) returns more]"
            )
            assert await page(session, start=10**9) == "There is no more output."

    run(main())


def test_a_flood_of_output_stays_bounded(sdk: Sdk, run: Callable) -> None:
    code = "line = 'z' * 1023\nfor i in range(50_000):\n    print(line)\nprint('the end')"

    async def main() -> None:
        async with sdk() as session:
            text = await ok(session, code)
            assert len(text) < 6000 and text.endswith("the end") and "of 51200008 characters" in text

    run(main(), 120)


def test_output_between_calls_is_not_lost(sdk: Sdk, run: Callable, workspace: Path) -> None:
    code = (
        "import os, threading, time\n"
        "def late():\n    while not os.path.exists('go'): time.sleep(0.01)\n    print('from a thread')\n    open('printed', 'w').close()\n"
        "threading.Thread(target=late).start()"
    )

    async def main() -> None:
        async with sdk() as session:
            await ok(session, code)
            (workspace / "go").touch()
            while not (workspace / "printed").exists():
                await asyncio.sleep(0.02)
            assert "from a thread" in await ok(session, "import time; time.sleep(0.2)")

    run(main())


# ---------------------------------------------------------------------- images


def show(mime: str, data: bytes | str) -> str:
    text = base64.b64encode(data).decode() if isinstance(data, bytes) else data
    return f"from IPython.display import display\ndisplay({{{mime!r}: {text!r}, 'text/plain': '<Figure>'}}, raw=True)"


def test_images_are_blocks_and_files(sdk: Sdk, run: Callable, workspace: Path) -> None:
    async def main() -> None:
        async with sdk() as session:
            result = await cell(session, "print('text')\n" + show("image/png", PNG))
            assert [b.type for b in result.content] == ["text", "image"]
            assert result.content[1].mime_type == "image/png" and base64.b64decode(result.content[1].data) == PNG
            path = workspace / "images/cell1-1.png"
            assert text_of(result) == f"text\n\nGenerated images:\n\n- [cell1-1]({path})"
            assert path.read_bytes() == PNG
            jpeg = b"\xff\xd8\xff\xe0" + b"x" * 50
            result = await cell(session, show("image/jpeg", jpeg))
            assert result.content[1].mime_type == "image/jpeg"
            assert (workspace / "images/cell2-1.jpg").read_bytes() == jpeg
            result = await cell(session, show("image/svg+xml", "<svg/>"))
            assert [b.type for b in result.content] == ["text"] and "cell3-1.svg" in text_of(result)
            assert (workspace / "images/cell3-1.svg").read_text() == "<svg/>"

    run(main())


def test_only_real_images_become_blocks(sdk: Sdk, run: Callable) -> None:
    async def main() -> None:
        async with sdk() as session:
            for data in ("not base64!", base64.b64encode(b"no image at all").decode(), ""):
                result = await cell(session, show("image/png", data))
                assert [b.type for b in result.content] == ["text"]
            many = show("image/png", PNG) + "\nfor _ in range(24): display({'image/png': _p}, raw=True)"
            many = f"_p = {base64.b64encode(PNG).decode()!r}\n" + many
            result = await cell(session, many)
            assert [b.type for b in result.content].count("image") == 20
            assert text_of(result).count("too many") == 5

    run(main())


def test_the_folder_for_images_can_be_chosen_and_no_link_leads_out(
    sdk: Sdk, run: Callable, tmp_path: Path, workspace: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()

    async def main() -> None:
        async with sdk("--images", tmp_path / "pictures") as session:
            assert "pictures/cell1-1.png" in await ok(session, show("image/png", PNG))
        async with sdk() as session:
            text = await ok(session, f"import os; os.symlink({str(outside)!r}, 'images')\n" + show("image/png", PNG))
            assert "not saved" in text and "symbolic link" in text

    run(main())
    assert (tmp_path / "pictures/cell1-1.png").exists() and not list(outside.iterdir())


# ---------------------------------------------------------------------- cells that do not end well


def test_a_timeout_interrupts_and_keeps_the_state(sdk: Sdk, run: Callable) -> None:
    async def main() -> None:
        async with sdk() as session:
            assert await ok(session, "1") == "1"  # the kernel has started, however slow the machine is
            text = await fails(session, "kept = 1\nprint('so far', flush=True)\nwhile True: pass", timeout=2.5)
            assert "so far" in text and "Timed out: the cell ran longer than its limit of 2.5 s" in text
            assert text.count("limit") == text.count("interrupted") == 1 and "larger timeout" in text
            assert await ok(session, "kept") == "1"

    run(main())


def test_the_client_s_own_timeout_cancels_the_cell(sdk: Sdk, run: Callable) -> None:
    async def main() -> None:
        async with sdk() as session:
            assert await ok(session, "kept = 1; kept") == "1"  # the kernel has started, however slow the machine is
            with pytest.raises(Exception, match="(?i)timed out"):
                await session.call_tool(
                    "execute_ipython_cell", {"code": "import time\ntime.sleep(60)"}, read_timeout_seconds=1
                )
            assert await ok(session, "kept") == "1"

    run(main())


@pytest.mark.parametrize("code", ["import os\nos._exit(7)", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"])
def test_a_dead_kernel_is_told_and_replaced(sdk: Sdk, run: Callable, code: str) -> None:
    async def main() -> None:
        async with sdk() as session:
            assert await ok(session, "x = 1; x") == "1"
            text = await fails(session, code)
            assert text.count("the kernel ended") == 1 and text.count("lost (variables and imports)") == 1
            text = await fails(session, "x")
            assert "NameError" in text and "kernel" not in text  # reported once
            assert await ok(session, "1") == "1"

    run(main())


@pytest.mark.own_supervisor
def test_a_lost_supervisor_is_replaced(sdk: Sdk, run: Callable, mcp_file: Path) -> None:
    async def main() -> None:
        async with sdk("--mcp", mcp_file, "--approve", "fake.*") as session:
            assert await ok(session, "x = 1; x") == "1"
            mine = [p for p in children_named(os.getpid(), "cellgate")]
            (supervisor,) = [s for p in mine for s in children_named(p, "cellgate-supervisor")]
            os.kill(supervisor, signal.SIGKILL)
            with contextlib.suppress(FileNotFoundError):
                while Path(f"/proc/{supervisor}/cmdline").read_bytes():  # a zombie has none
                    await asyncio.sleep(0.02)
            text = await fails(session, "x")
            if "NameError" not in text:  # it was noticed during the call rather than before it
                text = await fails(session, "x")
            assert "NameError" in text
            assert "fake" in await ok(session, "from mcptools.fake import echo; print(echo.run(text='fake'))")

    run(main())


# ---------------------------------------------------------------------- calls of MCP tools

MARK = "from mcptools.fake import leave_mark\nleave_mark.run(text='{}')"
CATCH = (
    "from cellgate_tools import RejectedError\n"
    "try:\n    leave_mark.run(text='x')\nexcept RejectedError as e:\n    print('caught', e)"
)


def test_without_a_rule_calls_are_refused_and_told_how_to_allow_them(
    sdk: Sdk, run: Callable, mcp_file: Path, mark: Path
) -> None:
    async def main() -> None:
        async with sdk("--mcp", mcp_file) as session:
            text = await fails(session, MARK.format("no"))
            assert "RejectedError" in text
            assert "start cellgate mcp serve with --approve 'fake.leave_mark'" in text
            assert "caught" in await ok(session, CATCH)

    run(main())
    assert not mark.exists()


def test_rules_allow_and_refuse(sdk: Sdk, run: Callable, mcp_file: Path, mark: Path) -> None:
    async def main() -> None:
        async with sdk("--mcp", mcp_file, "--approve", "fake.ec*") as session:
            assert "echo: hi" in await ok(session, "from mcptools.fake import echo\nprint(echo.run(text='hi'))")
            assert "fake.leave_mark" in await fails(session, MARK.format("no"))
        async with sdk("--mcp", mcp_file, "--approve", "all", "--approve", "!fake.leave_mark") as session:
            assert "!fake.leave_mark" in await fails(session, MARK.format("no"))
        async with sdk("--mcp", mcp_file, "--approve", "all") as session:
            await ok(session, MARK.format("yes"))

    run(main())
    assert mark.read_text() == "yes\n"


def test_instructions_name_the_servers(sdk: Sdk, run: Callable, mcp_file: Path) -> None:
    async def main() -> None:
        async with sdk("--mcp", mcp_file) as session:
            assert "already: fake." in (session.instructions or "")

    run(main())


def test_one_server_that_does_not_start_takes_nothing_else_along(
    sdk: Sdk, run: Callable, tmp_path: Path, mark: Path
) -> None:
    servers = {
        "broken": {"command": "/no/such/program"},
        "unset": {"command": "true", "env": {"X": "${CELLGATE_TEST_UNSET}"}},
        "fake": {"command": "/usr/bin/python3", "args": [FAKE], "env": {"MARK": str(mark)}},
    }
    (tmp_path / "some.json").write_text(json.dumps(servers))

    async def main() -> None:
        async with sdk("--mcp", tmp_path / "some.json", "--approve", "fake.*") as session:
            text = await ok(session, "from mcptools.fake import echo\nprint(echo.run(text='hi'))")
            assert "echo: hi" in text and '"broken" is not there' in text and "CELLGATE_TEST_UNSET" in text

    run(main())


# ---------------------------------------------------------------------- asking the person


class Person:
    """Answers elicitation requests, and keeps them."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.asked: list[ElicitRequestParams] = []

    async def __call__(self, context: object, params: ElicitRequestParams) -> ElicitResult | ErrorData:
        self.asked.append(params)
        answer = self.answers.pop(0)
        if isinstance(answer, str):
            return ElicitResult(action="accept", content={"decision": answer})
        if answer is None:
            await asyncio.sleep(3600)
        return answer  # type: ignore[return-value]


def test_the_person_is_asked(sdk: Sdk, run: Callable, mcp_file: Path, mark: Path) -> None:
    person = Person("approve", "reject", "approve")

    async def main() -> None:
        async with sdk("--mcp", mcp_file, "--approve", "ask", elicitation_callback=person) as session:
            await ok(session, MARK.format("first"))
            assert "the user rejected it" in await fails(session, MARK.format("second"))
            await ok(session, MARK.format("\\u202ethird\\x1b[2J"))

    run(main())
    assert mark.read_text() == "first\n\u202ethird\x1b[2J\n"
    message = person.asked[0].message
    assert "fake" in message and "leave_mark" in message and "first" in message
    assert "\u202e" not in person.asked[2].message and "\x1b" not in person.asked[2].message
    assert "third" in person.asked[2].message
    schema = person.asked[0].requested_schema
    assert schema["required"] == ["decision"] and "reject" in schema["properties"]["decision"]["enum"]


def test_always_means_this_tool_only(sdk: Sdk, run: Callable, mcp_file: Path, mark: Path) -> None:
    person = Person("approve this tool from now on", "reject")

    async def main() -> None:
        async with sdk("--mcp", mcp_file, "--approve", "ask", elicitation_callback=person) as session:
            await ok(session, "from mcptools.fake import leave_mark\nfor i in range(5): leave_mark.run(text=str(i))")
            assert "RejectedError" in await fails(session, "from mcptools.fake import echo\necho.run(text='x')")

    run(main())
    assert mark.read_text() == "0\n1\n2\n3\n4\n" and len(person.asked) == 2


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (ElicitResult(action="decline"), "the user rejected it"),
        (ElicitResult(action="cancel"), "no answer"),
        (ElicitResult(action="accept", content={}), "rejected"),
        (ElicitResult(action="accept", content={"decision": "Approve"}), "rejected"),
        (ElicitResult(action="accept", content={"decision": "reject", "reason": "not today"}), "not today"),
        (ErrorData(code=-32603, message="broken"), "could not ask"),
        (None, "did not answer in time"),
    ],
)
def test_anything_but_a_clear_yes_is_a_no(
    sdk: Sdk, run: Callable, mcp_file: Path, mark: Path, answer: object, words: str
) -> None:
    async def main() -> None:
        options = ("--mcp", mcp_file, "--approve", "ask", "--ask-timeout", "60" if answer else "4")
        async with sdk(*options, elicitation_callback=Person(answer)) as session:
            await ok(session, "from mcptools.fake import leave_mark; print()")
            # The cell's own time limit is shorter than the wait: it does not count.
            text = await fails(session, MARK.format("no"), timeout=3)
            assert ("RejectedError" if answer else "ApprovalTimeoutError") in text and words in text

    run(main())
    assert not mark.exists()


def test_a_client_that_cannot_ask_refuses(sdk: Sdk, run: Callable, mcp_file: Path, mark: Path) -> None:
    async def main() -> None:
        async with sdk("--mcp", mcp_file, "--approve", "ask") as session:
            text = await fails(session, MARK.format("no"))
            assert "cannot ask" in text and "--approve 'fake.leave_mark'" in text

    run(main())
    assert not mark.exists()


def test_many_questions_at_once(sdk: Sdk, run: Callable, mcp_file: Path, mark: Path) -> None:
    person = Person(*["approve", "reject"] * 5)
    code = (
        "from concurrent.futures import ThreadPoolExecutor\nfrom mcptools.fake import leave_mark\n"
        "def one(i):\n    try:\n        leave_mark.run(text=str(i))\n        return 1\n"
        "    except Exception as e:\n        return 0\n"
        "with ThreadPoolExecutor(10) as pool:\n    print(sum(pool.map(one, range(10))))"
    )

    async def main() -> None:
        async with sdk("--mcp", mcp_file, "--approve", "ask", elicitation_callback=person) as session:
            assert await ok(session, code) == "5"

    run(main())
    assert len(mark.read_text().splitlines()) == 5


# ---------------------------------------------------------------------- register_mcp_server

PARAMS = {"command": "/usr/bin/python3", "args": [FAKE]}


async def register(session: ClientSession, name: str = "mine", **changes: object) -> Any:
    return await session.call_tool("register_mcp_server", {"server_name": name, "server_params": {**PARAMS, **changes}})


def test_registering_needs_a_rule(sdk: Sdk, run: Callable, tmp_path: Path) -> None:
    async def main() -> None:
        async with sdk("--approve", "mine.*") as session:
            result = await register(session, command="touch", args=[str(tmp_path / "started")])
            assert result.is_error and "--approve 'cellgate.register_mcp_server'" in text_of(result)
            assert "ModuleNotFoundError" in await fails(session, "import mcptools.mine")

    run(main())
    assert not (tmp_path / "started").exists()


def test_a_registered_server_can_be_used_and_survives_reset(sdk: Sdk, run: Callable) -> None:
    async def main() -> None:
        async with sdk("--approve", "cellgate.register_mcp_server", "--approve", "mine.*") as session:
            text = text_of(await register(session))
            assert "from mcptools.mine import" in text and "echo" in text and "leave_mark" in text
            use = "from mcptools.mine import echo\nprint(echo.run(text='hi'))"
            assert "echo: hi" in await ok(session, use)
            await session.call_tool("reset", {})
            assert "echo: hi" in await ok(session, use)
            assert not (await register(session)).is_error
            assert "echo: hi" in await ok(session, use)

    run(main())


def test_a_server_that_does_not_start_is_an_error(sdk: Sdk, run: Callable) -> None:
    async def main() -> None:
        async with sdk("--approve", "all") as session:
            result = await register(session, command="/no/such/program")
            assert result.is_error and "/no/such/program" in text_of(result)
            assert await ok(session, "1") == "1"

    run(main())


def test_the_person_is_asked_about_registering(sdk: Sdk, run: Callable) -> None:
    person = Person("reject", "approve", None)

    async def main() -> None:
        options = ("--approve", "ask", "--approve", "mine.*", "--ask-timeout", "1")
        async with sdk(*options, elicitation_callback=person) as session:
            assert "the user rejected it" in text_of(await register(session))
            assert "from mcptools.mine import" in text_of(await register(session))
            assert "did not answer in time" in text_of(await register(session))

    run(main())
    assert "register_mcp_server" in person.asked[0].message and "fake_server.py" in person.asked[0].message
    assert person.asked[0].requested_schema["properties"]["decision"]["enum"] == ["approve", "reject"]


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
            with zipfile.ZipFile(folder / f"cgwheel-{version}-py3-none-any.whl", "w") as z:
                info = f"cgwheel-{version}.dist-info"
                z.writestr("cgwheel.py", f"version = {version!r}\n")
                z.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: cgwheel\nVersion: {version}\n")
                z.writestr(
                    f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
                )
                z.writestr(f"{info}/RECORD", "")
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


async def install(session: ClientSession, name: str) -> Any:
    return await session.call_tool("install_package", {"package_name": name})


def test_installing_needs_a_rule(sdk: Sdk, run: Callable, index: Path) -> None:
    async def main() -> None:
        async with sdk("--approve", "other.*") as session:
            result = await install(session, "cgwheel")
            assert result.is_error and "--approve 'cellgate.install_package'" in text_of(result)
            assert "ModuleNotFoundError" in await fails(session, "import cgwheel")

    run(main())


@pytest.mark.parametrize("environment_of_kernels", [None, BUILT_IN])
def test_packages_for_later_sessions_are_refused(
    sdk: Sdk, run: Callable, index: Path, environment_of_kernels: Path | None
) -> None:
    """Before anybody is asked, and whatever rule there is; without keep the same call is right."""
    before = sorted(BUILT_IN.rglob("cgwheel*"))

    async def main() -> None:
        words = [] if environment_of_kernels is None else ["--kernel-env", environment_of_kernels]
        async with sdk("--approve", "all", "--approve", "cellgate.install_package", *words) as session:
            arguments = {"package_name": "cgwheel==1.0"}
            for keep, why in ((True, "keep: true is refused"), ("yes", "true or false"), (1, "true or false")):
                result = await session.call_tool("install_package", {**arguments, "keep": keep})
                assert result.is_error and why in text_of(result)
                if keep is True:
                    where = (
                        "cellgate env create"
                        if environment_of_kernels is None
                        else f"cellgate env add {BUILT_IN.resolve()}"
                    )
                    assert where in text_of(result)
            assert "ModuleNotFoundError" in await fails(session, "import cgwheel")
            assert not (await session.call_tool("install_package", {**arguments, "keep": False})).is_error

    run(main())
    assert sorted(BUILT_IN.rglob("cgwheel*")) == before == []


def test_a_wheel_is_installed_without_restart_and_survives_reset(
    sdk: Sdk, run: Callable, index: Path, tmp_path: Path
) -> None:
    async def main() -> None:
        async with sdk("--approve", "cellgate.install_package") as session:
            assert "ModuleNotFoundError" in await fails(session, "x = 1\nimport cgwheel")
            result = await install(session, " cgwheel == 1.0 ")
            assert not result.is_error and "Successfully installed cgwheel-1.0" in text_of(result)
            assert await ok(session, "import cgwheel; x, cgwheel.version") == "(1, '1.0')"
            await session.call_tool("reset", {})
            assert await ok(session, "import cgwheel; cgwheel.version") == "'1.0'"
            assert not (await install(session, "cgwheel>=1.0,!=1.5")).is_error
            await session.call_tool("reset", {})
            assert await ok(session, "import cgwheel; cgwheel.version") == "'2.0'"
            assert "Read-only file system" in await fails(session, "open(cgwheel.__file__, 'a')")

    run(main())
    assert not (tmp_path / "elsewhere").exists()


def test_a_package_is_removed_with_no_more_than_its_own_files(
    sdk: Sdk, run: Callable, index: Path, tmp_path: Path
) -> None:
    """What a wheel has recorded is foreign: nothing outside of the session's folder is removed for it."""
    outside = tmp_path / "outside"
    outside.write_text("")
    with zipfile.ZipFile(index / "cghostile-1.0-py3-none-any.whl", "w") as z:
        info = "cghostile-1.0.dist-info"
        z.writestr("cghostile/__init__.py", "")
        z.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: cghostile\nVersion: 1.0\n")
        z.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        rows = ["cghostile/__init__.py", f"{info}/METADATA", f"{info}/WHEEL", f"{info}/RECORD", str(outside)]
        z.writestr(f"{info}/RECORD", "".join(f"{row},,\n" for row in [*rows, f"{'../' * 20}{outside}"]))

    async def uninstall(session: ClientSession, name: str) -> Any:
        return await session.call_tool("uninstall_package", {"package_name": name})

    async def main() -> None:
        async with sdk("--approve", "cellgate.install_package") as session:
            assert not (await install(session, "cgwheel==1.0 cghostile")).is_error
            assert await ok(session, "import cgwheel, cghostile; cgwheel.version") == "'1.0'"
            for wrong in ("no-such-package", "pip", "cgwheel==1.0", "../x", "", "--help"):
                result = await uninstall(session, wrong)
                assert result.is_error and "not installed in this session" in text_of(result)
            result = await uninstall(session, "CGHostile")
            assert not result.is_error and "Removed CGHostile" in text_of(result)
            await session.call_tool("reset", {})
            assert "ModuleNotFoundError" in await fails(session, "import cghostile")
            assert await ok(session, "import cgwheel; cgwheel.version") == "'1.0'"
            assert not (await uninstall(session, "cgwheel")).is_error
            await session.call_tool("reset", {})
            assert "ModuleNotFoundError" in await fails(session, "import cgwheel")

    run(main())
    assert outside.exists()


def test_source_packages_are_built_in_a_sandbox(
    sdk: Sdk, run: Callable, index: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    environment["GITHUB_TOKEN"] = "secret"

    async def main() -> None:
        async with sdk("--approve", "all") as session:
            result = await install(session, "cgwheel cgsource")
            assert not result.is_error, text_of(result)
            assert await ok(session, "import cgwheel, cgsource; print(cgsource.found)") == (
                "{'outside': 'OSError', 'home': 'FileNotFoundError', 'network': 'ConnectionRefusedError', 'variables': []}"
            )
            result = await install(session, "no-such-package")
            assert result.is_error and "No matching distribution" in text_of(result)

    run(main())
    assert not (tmp_path / "built").exists() and not (index / "built").exists()


def test_nothing_is_built_where_pip_has_a_password(
    sdk: Sdk, run: Callable, index: Path, environment: dict[str, str]
) -> None:
    environment["PIP_EXTRA_INDEX_URL"] = "https://user:secret@index.example.org/simple"

    async def main() -> None:
        with http.server.ThreadingHTTPServer(("127.0.0.2", 0), partial(Quiet, directory=str(index))) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            url = f"http://127.0.0.2:{server.server_port}/cgsource-1.0.tar.gz"
            async with sdk("--approve", "all") as session:
                for name in ("cgsource", url, f"cgsource@{url}"):
                    result = await install(session, name)
                    assert result.is_error and "since the settings of pip have a password" in text_of(result)
                assert not (await install(session, "cgwheel")).is_error
            server.shutdown()

    run(main())


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: Any) -> None:
        pass


def test_an_index_is_reached_and_no_other_host(
    sdk: Sdk, run: Callable, index: Path, environment: dict[str, str]
) -> None:
    requests: list[str] = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(index.parent))

        def log_message(self, *args: Any) -> None:
            requests.append(self.path)

    simple = index / "cgwheel"
    simple.mkdir()
    (simple / "index.html").write_text('<a href="../cgwheel-1.0-py3-none-any.whl">cgwheel-1.0-py3-none-any.whl</a>')
    del environment["PIP_NO_INDEX"], environment["PIP_FIND_LINKS"]
    environment["PIP_RETRIES"] = "0"  # of what is refused

    async def main() -> None:
        with http.server.ThreadingHTTPServer(("127.0.0.2", 0), Handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            address = f"127.0.0.2:{server.server_port}/{index.name}"
            environment["PIP_INDEX_URL"] = f"http://{address}"
            async with sdk("--approve", "all") as session:
                result = await install(session, "cgwheel")
                assert not result.is_error and requests, text_of(result)
                result = await install(session, "cgwheel@https://other.example.org/cgwheel-1.0-py3-none-any.whl")
                assert result.is_error  # its name was approved, but does not exist
            environment["PIP_INDEX_URL"] = "http://index.example.org"
            async with sdk("--approve", "all") as session:
                url = f"http://{address}/cgwheel-1.0-py3-none-any.whl"
                (simple / "index.html").write_text("")
                assert (await install(session, "cgwheel")).is_error
                assert not (await install(session, url)).is_error
            server.shutdown()

    run(main())


NO_REQUIREMENTS = [
    *("", " ", "-r/etc/passwd", "--index-url=http://x", "-e .", ".", "..", "./cgwheel", "/tmp/x", "a/b", "a\\b"),
    *(
        "file:x",
        "file:///x.whl",
        "git+ssh://example.org/x.git",
        "git+file:///x",
        "x @ file:///x.whl",
        "ftp://example.org/x",
    ),
    *("https://user:pw@example.org/x.whl", "https://example.org@evil.example/x.whl", "https:///x.whl"),
    *("cgwheel; python_version > '3'", "cgwheel.whl", "cgwheel.tar.gz", "_x", "cgwheel cgsource.whl"),
    *("cgwheel --pre", "cgwheel==1.0 --pre", "$(id)", "x" * 3000, "caf\u00e9", "cgwheel #x", "a " * 40),
]


def test_options_paths_and_passwords_are_refused(sdk: Sdk, run: Callable, index: Path) -> None:
    async def main() -> None:
        async with sdk("--approve", "all") as session:
            for name in NO_REQUIREMENTS:
                result = await install(session, name)
                assert result.is_error and "package_name must be" in text_of(result) or "longer" in text_of(result), (
                    name
                )

    run(main())


FONTS = """
import json, os, pathlib
folder = pathlib.Path(os.path.expanduser("~/.cache/matplotlib"))
made = not (folder / "fontlist-v9.json").exists()
if made:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "fontlist-v9.json").write_text(json.dumps({"files": os.listdir("."), "root": os.access("/etc", os.W_OK)}))
"""


def test_fonts_are_listed_once_by_no_cell_and_in_a_sandbox(sdk: Sdk, run: Callable, index: Path) -> None:
    with zipfile.ZipFile(index / "matplotlib-1.0-py3-none-any.whl", "w") as z:
        info = "matplotlib-1.0.dist-info"
        z.writestr(
            "matplotlib/__init__.py", "import os\ndef get_cachedir(): return os.path.expanduser('~/.cache/matplotlib')"
        )
        z.writestr("matplotlib/font_manager.py", FONTS)
        z.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: matplotlib\nVersion: 1.0\n")
        z.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr(f"{info}/RECORD", "")
    cell = (
        "import matplotlib.font_manager as f, pathlib\npath = f.folder / 'fontlist-v9.json'\n"
        "print(f.made, path.read_text())\n"
        "try: path.write_text('poison')\nexcept OSError as e: print(e.strerror)\n"
        "path.unlink()\n_ = path.write_text('poison')"
    )

    async def main() -> None:
        async with sdk("--approve", "cellgate.install_package") as session:
            await ok(session, "open('mine', 'w').close()")  # the workspace of cells, which the list is not made in
            assert not (await install(session, "matplotlib")).is_error
            for _ in range(2):
                said = await ok(session, cell)
                assert [
                    line for line in said.splitlines() if line and "[cellgate: the sandbox refused writing" not in line
                ] == [
                    'False {"files": [], "root": false}',
                    "Read-only file system",
                ]
                await session.call_tool("reset", {})

    run(main())
