"""Sessions whose language is node (docs/languages.md)."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cellgate_api import CellgateError, Client, Event, Session
from rounds import rounds
from server_definitions import echo
from tables import cases, read_table

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="there is no node")


# Without node's headers: these are all that it needs of them.
ADD_ON = """
typedef struct env *env; typedef struct value *value;
int napi_create_int32(env, int, value *); int napi_set_named_property(env, value, const char *, value);
__attribute__((visibility("default"))) int node_api_module_get_api_version_v1(void) { return 8; }
__attribute__((visibility("default"))) value napi_register_module_v1(env e, value exports)
{
        value v;

        napi_create_int32(e, 42, &v);
        napi_set_named_property(e, exports, "answer", v);
        return exports;
}
"""


@pytest.fixture(scope="module")
def add_on(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("native") / "native.node"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", path, "-xc", "-"], input=ADD_ON.encode(), check=True)
    return path


@pytest.fixture(scope="module")
def mark(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("node") / "mark"


@pytest.fixture(scope="module")
def session(client: Client, mark: Path, add_on: Path) -> Iterator[Session]:
    """One for the tests of this file, with the MCP server "echo": each declares names of its own."""
    workspace = mark.with_name("work space")
    files = {
        "node_modules/pack/package.json": '{"name": "pack", "type": "module", "exports": {"import": "./i.js"}}',
        "node_modules/pack/i.js": "export const one = 1;",
        "node_modules/common/index.js": "exports.two = 2;",
        "own.mjs": "export const three = 3;",
        "own.cjs": "exports.four = 4;",
        "data.json": '{"a": 1}',
    }
    for name, text in files.items():
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text(text)
    shutil.copy(add_on, workspace)
    with client.session(workspace=workspace, language="node") as s:
        assert s.info["language"] == "node"
        s.add_servers(echo(mark))
        yield s


# By name a list of (code, the text of its value; null: there is none). Or {"out": standard output}, {"err": regular
# expression of standard error}, {"fails": [name of the error, regular expression of its lines]}. All run in one session:
# names that another case declares otherwise are not used again.
CELLS = cases(read_table(Path(__file__).parent / "data/node_cells.json"))


@pytest.mark.parametrize("name", CELLS)
def test_cells(session: Session, name: str) -> None:
    for code, expected in CELLS[name]:
        out = session.run(code)
        match expected:
            case {"fails": [ename, pattern]}:
                assert (out.status, out.error["ename"]) == ("error", ename), out
                assert re.search(pattern, "\n".join(out.error["traceback"])), out.error
                continue
            case {"out": text}:
                assert out.stdout == text
            case {"err": pattern}:
                assert re.search(pattern, out.stderr), out
            case _:
                assert out.value == expected, out
        assert out.status == "ok", (out, out.error)


def test_values_of_cells_are_not_kept(session: Session) -> None:
    for _ in range(30):
        session.run("new Uint8Array(5e6)")
    assert int(session.run("process.memoryUsage().arrayBuffers").value or 0) < 60e6


@pytest.mark.parametrize("code", ["while (true) {}", "await new Promise(() => {})", "for (;;) Math.random()"])
def test_an_interrupt_keeps_the_state(session: Session, code: str) -> None:
    assert session.run("let x = 5").status == "ok"
    assert session.run(code, timeout_ms=300).status == "timeout"
    assert session.run("x").value == "5"


@pytest.mark.parametrize("code", ["console.log(1)", "display(1)"])
def test_interrupts_within_what_a_cell_calls_keep_the_state(session: Session, code: str) -> None:
    """Where an exception may leave a stream in the middle of write()."""
    assert session.run("let x = 5").status == "ok"
    for i in range(rounds(10, 5)):
        session.execute(f"while (true) {code}", timeout_ms=30 + 14 * i)
        assert session.until("result")[-1].status == "timeout"
        out = session.run("x")
        assert out.value == "5", out


def test_an_interrupt_ends_programs_of_a_wait(session: Session) -> None:
    code = "const ended = new Promise((r) => require('child_process').exec('sleep 60', r)); await ended"
    assert session.run("1").status == "ok"  # an interrupt while node starts ends node
    assert session.run(code, timeout_ms=300).status == "timeout"
    assert session.run("(await ended).signal", timeout_ms=9000).value == "'SIGINT'"


@pytest.mark.parametrize("code", ["process.on('SIGINT', () => {})", "process.once('SIGINT', () => {})"])
def test_an_interrupt_where_a_cell_listens_to_the_signal(session: Session, code: str) -> None:
    assert session.run(f"let x = 5; {code}; 1").status == "ok"
    assert session.run("await new Promise(() => {})", timeout_ms=200).status == "timeout"
    assert session.run("process.removeAllListeners('SIGINT'); x").value == "5"
    for loop in ("await new Promise(() => {})", "while (true) {}"):
        assert session.run(loop, timeout_ms=200).status == "timeout"
        assert session.run("x").value == "5"


def test_a_loop_after_await_ends_node(session: Session) -> None:
    assert session.run("let x = 5").status == "ok"
    out = session.run("await 1; while (true) {}", timeout_ms=200)
    assert out.status == "timeout"
    assert "its variables and modules are lost" in out.stderr
    assert session.run("typeof x").value == "'undefined'"


@pytest.mark.parametrize(
    "code",
    [
        "process.kill(process.pid, 'SIGKILL')",
        "process.reallyExit(0)",
        "process.abort()",
        # A signal of its own makes node take its inspector down first, also if it is one that ends nothing.
        "setTimeout(() => process.kill(process.pid, 'SIGKILL'), 10); await new Promise((r) => setTimeout(r, 9999))",
        "process.kill(process.pid, 'SIGWINCH')",
        "setTimeout(() => process.kill(process.pid, 'SIGWINCH'), 10); await new Promise((r) => setTimeout(r, 9999))",
    ],
)
def test_a_node_that_ends(session: Session, code: str) -> None:
    out = session.run(code)
    assert (out.status, out.error["ename"]) == ("error", "NodeEnded")
    assert session.run("1").value == "1"


def test_display(session: Session) -> None:
    out = session.run("display({'text/html': '<b>x</b>', 'image/png': new Uint8Array([1])}); display(1); display([1])")
    assert [e.json["data"] for e in out.events if e.type == "display_data"] == [
        {"text/html": "<b>x</b>", "image/png": "AQ=="},
        {"text/plain": "1"},
        {"text/plain": "[ 1 ]"},
    ]
    png = "Buffer.from('iVBORw0KGgo=', 'base64')"
    values = [e for e in session.run(png).events if e.type == "execute_result"]
    assert values[0].json["data"]["image/png"] == "iVBORw0KGgo="
    out = session.run("({ [Symbol.for('Jupyter.display')]: () => ({ 'application/json': { a: 1 } }) })")
    assert next(e for e in out.events if e.type == "execute_result").json["data"] == {"application/json": {"a": 1}}


def test_typescript_needs_a_node_that_strips_types(session: Session) -> None:
    out = session.run("const x: number = 1; x", extra={"metadata": {"cellgate": {"file": "a.ts", "line": 1}}})
    assert out.value == "1" or "22.13" in out.error["evalue"]


def test_a_node_that_does_not_exist(client: Client, workspace: Path) -> None:
    with pytest.raises(CellgateError, match="/none/node is no program"):
        client.session(workspace=workspace, language="node", node="/none/node")


# ---------------------------------------------------------------- programs

SPAWN = "try {{ require('child_process').execFileSync({}).toString() }} catch (e) {{ e.code }}"


@pytest.mark.parametrize("exec", ["deny", "ask"])
def test_only_the_session_starts_its_node(client: Client, workspace: Path, exec: str) -> None:
    asked = []
    with client.session(workspace=workspace, language="node", exec=exec) as s:
        for call in (
            "'/bin/echo', ['ran']",
            "process.execPath, ['-p', '\"ran\"']",
            "'/proc/self/exe', ['-p', '\"ran\"']",
        ):
            out = s.run(SPAWN.format(call), decide=lambda e: asked.append(json.loads(e.args)["command"]) or False)
            assert out.status == "ok" and "EPERM" in out.value, out
        assert s.run("6 * 7").value == "42"
        s.run("process.kill(process.pid, 'SIGKILL')")
        assert s.run("6 * 7").value == "42"
    assert len(asked) == (3 if exec == "ask" else 0)


def test_each_program_is_asked_about(client: Client, workspace: Path) -> None:
    asked = []
    with client.session(workspace=workspace, language="node", exec="ask") as s:
        code = "require('child_process').execFileSync('/bin/sh', ['-c', '/bin/echo a; true']).toString()"
        assert s.run(code, decide=lambda e: asked.append(json.loads(e.args)["argv"]) or True).value == "'a\\n'"
    assert asked == [["/bin/sh", "-c", "/bin/echo a; true"]]


# ---------------------------------------------------------------- tools


@pytest.fixture
def node_tools(session: Session) -> Session:
    assert session.run("import { echo, danger, fail, slow } from 'mcptools/echo'").status == "ok"
    return session


def accept(_: Event) -> bool:
    return True


def test_tools(node_tools: Session, mark: Path) -> None:
    assert node_tools.run("await echo({ text: 'a b' })", decide=accept).value == "'a b'"
    out = node_tools.run("await fail({ text: 'why' })", decide=accept)
    assert (out.error["ename"], out.error["evalue"], out.result.refused) == ("ToolError", "why", False)
    out = node_tools.run("await danger({})", decide=lambda _: "not now")
    assert out.error["ename"] == "RejectedError" and "not now" in out.error["evalue"] and out.result.refused
    assert not mark.exists()
    caught = "import { RejectedError } from 'mcptools'; try { await danger() } catch (e) { e instanceof RejectedError }"
    assert node_tools.run(caught, decide=lambda _: False).value == "true"
    assert "text" in node_tools.run("await echo({})").error["evalue"]


def test_the_question_names_tool_and_arguments(node_tools: Session) -> None:
    asked = []
    node_tools.run("await echo({ text: 'a' })", decide=lambda e: asked.append((e.server, e.tool, e.args)) or True)
    assert asked == [("echo", "echo", '{"text":"a"}')]


def test_calls_wait_beside_each_other(node_tools: Session) -> None:
    code = "(await Promise.all([1, 2, 3, 4].map((n) => echo({ text: String(n) })))).join()"
    number = node_tools.execute(code)
    questions = [node_tools.until("approval_request")[-1] for _ in range(4)]
    for e in reversed(questions):
        node_tools.accept(e.approval)
    assert node_tools.until("result")[-1].cell == number


def test_an_interrupt_ends_a_call(node_tools: Session) -> None:
    assert node_tools.run("let x = 1; await slow({ seconds: 2 })", decide=accept, timeout_ms=300).status == "timeout"
    assert node_tools.run("x").value == "1"


def test_an_interrupt_settles_calls_that_later_cells_wait_for(node_tools: Session) -> None:
    """Also one that an earlier cell made, and that nobody has decided about."""
    node_tools.execute("const early = slow({ seconds: 2 }); undefined")
    if "approval_request" not in [e.type for e in node_tools.until("result")]:
        node_tools.until("approval_request")
    number = node_tools.execute("const late = slow({ seconds: 2 }); await late")
    node_tools.accept(node_tools.until("approval_request")[-1].approval)
    node_tools.cancel(number)
    assert node_tools.until("result")[-1].status == "cancelled"
    out = node_tools.run("const ends = await Promise.allSettled([early, late]); ends.map((e) => e.reason.name)")
    assert out.value == "[ 'ToolError', 'ToolError' ]", out


def test_large_results_at_once(node_tools: Session) -> None:
    code = "(await Promise.all([...'abcdef'].map((c) => echo({ text: c.repeat(700000) })))).map((t) => t[0] + t.length)"
    out = node_tools.run(code, decide=accept, timeout_ms=20000)
    assert json.loads(out.value.replace("'", '"')) == [c + "700000" for c in "abcdef"]


def test_an_interrupt_while_a_cell_is_sent(session: Session) -> None:
    """node does not read; what it has read so far is the beginning of a line."""
    assert session.run("let x = 5; setTimeout(() => { for (const t = Date.now(); Date.now() < t + 800; ); }, 0)").value
    assert session.run("7 //" + "x" * 3_000_000, timeout_ms=200).status == "timeout"
    assert session.run("x").value == "5"


def test_finding_tools(node_tools: Session) -> None:
    assert (
        node_tools.run("import { search } from 'mcptools'; (await search('leaves a mark'))[0].tool").value == "'danger'"
    )
    assert "Leaves a mark" in node_tools.run("import { help } from 'mcptools'; await help('echo', 'danger')").value
    declared = node_tools.run("import { types } from 'mcptools'; await types()").value
    assert "export function danger(params" in declared and "Leaves a mark" in declared
    assert "no server" in node_tools.run("await (await import('mcptools')).types('none')").error["evalue"]
    assert "no server" in node_tools.run("import 'mcptools/none'").error["evalue"]


def test_functions_of_the_host(session: Session) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    session.add_functions("host", [{"name": "double", "description": "Doubles.", "inputSchema": schema}])
    session.execute("import { double } from 'mcptools/host'; await double({ a: 21 })")
    call = session.until("function_call")[-1]
    session.give(call.approval, {"b": 42})
    assert session.until("execute_result")[-1].json["data"]["text/plain"] == "{ b: 42 }"
    session.until("result")


def test_a_reset(session: Session) -> None:
    assert session.run("let x = 1").status == "ok"
    session.reset()
    assert session.run("typeof x").value == "'undefined'"


# ---------------------------------------------------------------- many calls


@pytest.mark.parametrize("language", ["shell", "node"])
def test_exactly_the_accepted_calls_are_made(client: Client, workspace: Path, tmp_path: Path, language: str) -> None:
    mark = tmp_path / "mark"
    accepted, seen = set(), set()

    def decide(e: Event) -> bool:
        text = json.loads(e.args)["text"]
        if int(text.rpartition("n")[2]) % 3:
            return False
        accepted.add(text)
        return True

    with client.session(workspace=workspace, language=language) as s:
        s.add_servers(echo(mark))
        for i in range(3):
            names = [f"r{i}n{n}" for n in range(12)]
            if language == "shell":
                call = "mcptools echo danger text=$i >/dev/null 2>&1 && echo $i"
                code = f"for i in {' '.join(names)}; do {{ {call}; }} & done; wait"
            else:
                call = "danger({ text }).then(() => console.log(text))"
                code = "import { danger } from 'mcptools/echo';"
                code += f"await Promise.allSettled({json.dumps(names)}.map((text) => {call}))"
            seen.update(s.run(code, decide=decide).stdout.split())
    made = {json.loads(line)["text"] for line in mark.read_text().splitlines()}
    assert made == accepted == seen
    assert len(made) == 12


def completed(session: Session, code: str) -> tuple[list[str], int, int]:
    content = session.ask("complete_request", {"code": code, "cursor_pos": len(code)}).json
    return content["matches"], content["cursor_start"], content["cursor_end"]


def test_completion(session: Session) -> None:
    session.run("let alpha = {beta: {gamma: 1, get evil() { globalThis.ran = 1 }}, be2: 1}; var alone = 5;")
    session.run(
        "const traps = new Proxy({}, {get() { ran = 2 }, ownKeys() { ran = 3 }, getOwnPropertyDescriptor() { ran = 4 }})"
    )
    assert completed(session, "x = al") == (["alone", "alpha"], 4, 6)
    assert completed(session, "alpha.be") == (["be2", "beta"], 6, 8)
    assert completed(session, "alpha.beta.g") == (["gamma"], 11, 12)
    assert completed(session, "console.lo") == (["log"], 8, 10)
    for code in ("alpha.beta.evil.x", "traps.a", "traps.a.b", "[1].ma", "f().x", "nothing.at.all", "5.to", "while.x"):
        assert completed(session, code)[0] == [], code
    assert session.run("typeof ran").value == "'undefined'"
    content = session.ask("complete_request", {"code": "alpha.be + 1", "cursor_pos": 8}).json
    assert (content["matches"], content["cursor_end"]) == (["be2", "beta"], 8)
