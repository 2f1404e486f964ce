"""Revision 2026-07-28: requests without a handshake, and questions that are a call's result."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import StdioServerParameters
from mcp.client.client import Client
from mcp_serve.helpers import Raw, text_of
from processes import eventually

Serve = Callable[..., Raw]
META = "io.modelcontextprotocol/"
FORMS = {"elicitation": {"form": {}}}
CODE = "from mcptools.fake import leave_mark\nleave_mark.run(text='x')\n'ran'"
YES = {"action": "accept", "content": {"decision": "approve"}}


def meta(capabilities: object = FORMS, version: object = "2026-07-28", **more: object) -> dict[str, Any]:
    return {META + "protocolVersion": version, META + "clientCapabilities": capabilities, **more}


class Stateless:
    """A client of the stateless era, by hand."""

    def __init__(self, server: Raw, capabilities: object = FORMS) -> None:
        self.server = server
        self.capabilities = capabilities

    def request(self, method: str, **params: object) -> dict[str, Any]:
        params["_meta"] = meta(self.capabilities)
        return self.server.answer(self.server.request(method, params))

    def call(self, tool: str, state: str | None = None, answers: object = None, **arguments: object) -> dict[str, Any]:
        more = {} if state is None else {"requestState": state, "inputResponses": answers or {}}
        return self.request("tools/call", name=tool, arguments=arguments, **more)["result"]

    def cell(self, code: str, state: str | None = None, answers: object = None) -> dict[str, Any]:
        return self.call("execute_ipython_cell", state, answers, code=code)


@pytest.fixture
def asking(serve: Serve, mcp_file: Path) -> Stateless:
    return Stateless(serve("--mcp", mcp_file, "--approve", "ask"))


def the_question(result: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """Of a result that asks one question: its key, the state, and the form."""
    assert result["resultType"] == "input_required", result
    ((key, question),) = result["inputRequests"].items()
    assert question["method"] == "elicitation/create" and question["params"]["mode"] == "form"
    return key, result["requestState"], question["params"]


def test_results_say_what_a_handshake_said(serve: Serve) -> None:
    client = Stateless(serve())
    found = client.request("server/discover")["result"]
    assert found["supportedVersions"] == ["2026-07-28"] and "tools" in found["capabilities"]
    tools = client.request("tools/list")["result"]
    for result in (found, tools):
        assert result["resultType"] == "complete" and result["cacheScope"] == "private" and result["ttlMs"] >= 0
        assert result["_meta"][META + "serverInfo"]["name"] == "cellgate"
    assert "execute_ipython_cell" in [t["name"] for t in tools["tools"]]
    result = client.cell("1 + 1")
    assert result["resultType"] == "complete" and text_of(result) == "2"
    types.CallToolResult.model_validate(result)


@pytest.mark.parametrize(
    ("method", "with_meta", "code"),
    [
        ("tools/list", {META + "protocolVersion": "2026-07-28"}, -32602),
        ("tools/list", meta(capabilities=[]), -32602),
        ("tools/list", meta(version=1), -32602),
        ("server/discover", {}, -32602),
        ("tools/list", meta(version="2027-01-01"), -32022),
        ("initialize", meta(), -32601),
        ("ping", meta(), -32601),
        ("logging/setLevel", meta(), -32601),
        ("resources/subscribe", meta(), -32601),
    ],
)
def test_wrong_requests_are_refused(serve: Serve, method: str, with_meta: dict, code: int) -> None:
    server = serve()
    error = server.answer(server.request(method, {"_meta": with_meta}))["error"]
    assert error["code"] == code
    if code == -32022:
        assert error["data"] == {"supported": ["2026-07-28"], "requested": "2027-01-01"}


def test_both_eras_in_one_connection(serve: Serve) -> None:
    """Claude Code 2.1.280 shakes hands after a successful server/discover."""
    server = serve()
    client = Stateless(server)
    assert client.request("server/discover")["result"]["supportedVersions"]
    assert server.initialize()["protocolVersion"] == "2025-11-25"
    result = server.result(server.call("execute_ipython_cell", code="a = 1"))
    assert "resultType" not in result
    assert text_of(client.cell("a")) == "1"
    # Without a handshake a request of the older era is refused.
    other = serve()
    assert Stateless(other).request("server/discover")["result"]
    assert other.answer(other.request("tools/list"))["error"]["code"] == -32600


def test_an_empty_subscription_is_acknowledged_and_stays_open(serve: Serve) -> None:
    server = serve()
    id = server.request("subscriptions/listen", {"_meta": meta(), "notifications": {"toolsListChanged": True}})
    message = server.receive()
    assert message["method"] == "notifications/subscriptions/acknowledged"
    assert message["params"] == {"_meta": {META + "subscriptionId": id}, "notifications": {}}
    assert Stateless(server).request("tools/list")["result"]


def test_a_paused_cell_goes_on_once_it_is_approved(asking: Stateless, mark: Path, workspace: Path) -> None:
    code = "open('runs', 'a').write('x')\n" + CODE
    key, state, form = the_question(asking.cell(code))
    assert "fake" in form["message"] and "leave_mark" in form["message"] and not mark.exists()
    assert "Without an answer within 300 s it is refused." in form["message"]
    result = asking.cell(code, state, {key: YES})
    assert result["resultType"] == "complete" and text_of(result) == "'ran'"
    assert mark.read_text() == "x\n" and (workspace / "runs").read_text() == "x"  # the cell ran once


NO_YES: list[Any] = [
    {"action": "decline"},
    {"action": "cancel"},
    {"action": "accept"},
    {"action": "accept", "content": {}},
    {"action": "accept", "content": {"decision": "Approve"}},
    {"action": "accept", "content": {"decision": ["approve"]}},
    {},
    [],
    None,
]


def test_all_but_a_clear_yes_is_a_no(asking: Stateless, mark: Path) -> None:
    for answer in NO_YES:
        key, state, _ = the_question(asking.cell(CODE))
        result = asking.cell(CODE, state, {key: answer})
        assert result["isError"] and "RejectedError" in text_of(result) and not mark.exists(), answer


def test_a_state_is_good_for_one_answer_to_the_same_call(asking: Stateless, mark: Path) -> None:
    key, state, _ = the_question(asking.cell(CODE))
    for wrong in ("0" * 32, "", state[:-1], state + "0", state.upper() + "x"):
        message = asking.request("tools/call", name="execute_ipython_cell", arguments={"code": CODE},
                                 requestState=wrong, inputResponses={key: YES})  # fmt: skip
        assert message["error"]["code"] == -32602
    for name, code in (("execute_ipython_cell", "1"), ("start_cell", CODE)):
        message = asking.request("tools/call", name=name, arguments={"code": code},
                                 requestState=state, inputResponses={key: YES})  # fmt: skip
        assert message["error"]["code"] == -32602 and "another call" in message["error"]["message"]
    assert not mark.exists()
    # What has no answer is asked again, under another key and state.
    second, other_state, _ = the_question(asking.cell(CODE, state, {"q0": YES, "other": YES}))
    assert second != key and other_state != state
    third, last_state, _ = the_question(asking.cell(CODE, other_state, {key: YES}))
    assert not mark.exists()
    assert text_of(asking.cell(CODE, last_state, {third: YES})) == "'ran'"
    for old in (state, other_state, last_state):
        message = asking.request("tools/call", name="execute_ipython_cell", arguments={"code": CODE},
                                 requestState=old, inputResponses={third: YES})  # fmt: skip
        assert message["error"]["code"] == -32602
    assert mark.read_text() == "x\n"


def test_an_answer_for_one_call_decides_no_other(serve: Serve, mcp_file: Path, mark: Path) -> None:
    client = Stateless(serve("--mcp", mcp_file, "--approve", "ask"))
    key, state, _ = the_question(client.cell(CODE))
    assert client.cell(CODE, state, {key: {"action": "decline"}})["isError"]
    again, state, _ = the_question(client.cell(CODE))
    answers = {key: YES, f"q{int(again[1:]) + 1}": YES, f"q0{again[1:]}x": {"action": "decline"}}
    again, state, _ = the_question(client.cell(CODE, state, answers))
    assert not mark.exists()
    assert client.cell(CODE, state, {again: YES})["resultType"] == "complete" and mark.exists()


def test_calls_of_a_cell_are_asked_about_together(asking: Stateless, mark: Path) -> None:
    code = (
        "import asyncio\nfrom mcptools.fake import leave_mark\n"
        "r = await asyncio.gather(*(asyncio.to_thread(leave_mark.run, text=str(i)) for i in range(5)), return_exceptions=True)\n"
        "sum(isinstance(x, Exception) for x in r)"
    )
    result = asking.cell(code)
    answered = 0
    while result["resultType"] == "input_required":
        questions = result["inputRequests"]
        answers = {}
        for key in questions:
            answers[key] = YES if answered % 2 == 0 else {"action": "decline"}
            answered += 1
        result = asking.cell(code, result["requestState"], answers)
    assert answered == 5 and text_of(result) == "2"
    assert len(mark.read_text().split()) == 3


def test_a_client_without_forms_is_refused_at_once(serve: Serve, mcp_file: Path, mark: Path) -> None:
    for capabilities in ({}, {"elicitation": {"url": {}}}):
        client = Stateless(serve("--mcp", mcp_file, "--approve", "ask"), capabilities)
        result = client.cell(CODE)
        assert result["isError"] and "cannot ask" in text_of(result) and not mark.exists()


def test_a_question_that_nobody_answers_ends_by_its_time_limit(serve: Serve, mcp_file: Path, mark: Path) -> None:
    client = Stateless(serve("--mcp", mcp_file, "--approve", "ask", "--ask-timeout", "1"))
    key, state, _ = the_question(client.cell(CODE))
    found = {}

    def ended() -> bool:
        found.update(client.call("cell_result", execution_id="cell-1", wait=0))
        return found["structuredContent"]["status"] == "error"

    eventually(ended)
    assert "did not answer in time" in text_of(found)
    # The late answer gets the result, and decides nothing.
    result = client.cell(CODE, state, {key: YES})
    assert result["isError"] and "did not answer in time" in text_of(result) and not mark.exists()


def test_a_question_of_a_started_cell_comes_with_its_result(asking: Stateless, mark: Path) -> None:
    assert "cell-1" in text_of(asking.call("start_cell", code=CODE))
    arguments = {"execution_id": "cell-1", "wait": 20}
    key, state, _ = the_question(asking.call("cell_result", **arguments))
    result = asking.call("cell_result", state, {key: YES}, **arguments)
    assert text_of(result) == "'ran'" and mark.exists()


def test_our_own_tools_are_asked_about(serve: Serve, mcp_file: Path) -> None:
    client = Stateless(serve("--approve", "ask"))
    arguments = {"server_name": "x", "server_params": {"command": "/bin/false"}}
    key, state, form = the_question(client.call("register_mcp_server", **arguments))
    assert "register_mcp_server" in form["message"]
    result = client.call("register_mcp_server", state, {key: {"action": "decline"}}, **arguments)
    assert result["isError"] and "rejected" in text_of(result)


def test_input_of_a_cell_is_asked_for(serve: Serve) -> None:
    client = Stateless(serve())
    key, state, form = the_question(client.cell("input('name? ')"))
    assert "name?" in form["message"]
    answer = {"action": "accept", "content": {"text": "Ann"}}
    assert text_of(client.cell("input('name? ')", state, {key: answer})) == "'Ann'"


def test_a_reset_ends_a_paused_cell(asking: Stateless, mark: Path) -> None:
    key, state, _ = the_question(asking.cell(CODE))
    assert not asking.call("reset")["isError"]
    result = asking.cell(CODE, state, {key: YES})
    assert result["isError"] and "reset was called" in text_of(result) and not mark.exists()


def test_held_calls_are_bounded(asking: Stateless, mark: Path) -> None:
    """Each call of cell_result may ask, and never come again."""
    asking.call("start_cell", code=CODE)
    states = []
    key, state, _ = the_question(asking.call("cell_result", execution_id="cell-1", wait=20))
    for _ in range(100):
        states.append(state)
        key, state, _ = the_question(asking.call("cell_result", state, {}, execution_id="cell-1", wait=20))
    assert text_of(asking.call("cell_result", state, {key: YES}, execution_id="cell-1", wait=20)) == "'ran'"


@pytest.mark.parametrize("mode", ["auto", "2026-07-28"])
def test_the_official_client(
    cellgate: Path, workspace: Path, environment: dict[str, str], mcp_file: Path, mark: Path, mode: str
) -> None:
    asked = []

    async def elicit(_context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"decision": "approve"})

    async def use() -> None:
        words = ["mcp", "serve", "--workspace", str(workspace), "--mcp", str(mcp_file), "--approve", "ask"]
        parameters = StdioServerParameters(command=str(cellgate), args=words, env={**os.environ, **environment})
        async with Client(parameters, mode=mode, elicitation_callback=elicit) as client:
            result = await client.call_tool("execute_ipython_cell", {"code": CODE})
            assert not result.is_error and text_of(result) == "'ran'"
            result = await client.call_tool("execute_ipython_cell", {"code": "print('again')"})
            assert text_of(result) == "again"

    anyio.run(use)
    assert len(asked) == 1 and mark.read_text() == "x\n"


def test_without_a_session_each_call_gets_a_new_one(serve: Serve) -> None:
    """The processes of `mcp serve --http` whose clients have no connection: the variable is cellgate-mcp-http's."""
    client = Stateless(
        serve("--max-sessions", "3", "--toolsets", "core,jobs,sessions", env={"CELLGATE_HTTP_SESSION": "0000002as"})
    )
    first, second = client.cell("x = 1"), client.cell("'x' in globals()")
    ids = [r["structuredContent"]["session_id"] for r in (first, second)]
    assert len(set(ids)) == 2 and all(re.fullmatch("0000002a[0-9a-f]{24}", id) for id in ids)
    for id, result in zip(ids, (first, second), strict=True):
        assert text_of(result).startswith("[cellgate: a new session") and f'session_id="{id}"' in text_of(result)
    assert text_of(second).endswith("]\nFalse")
    assert text_of(client.call("execute_ipython_cell", code="x", session_id=ids[0])) == "1"
    # A call that is wrong leaves none; what needs one says so.
    for _ in range(4):
        assert client.call("execute_ipython_cell")["isError"]
    assert '"session_id" is missing' in text_of(client.call("reset"))
    eventually(lambda: len(text_of(client.call("list_sessions")).splitlines()) == 2)
    eventually(lambda: not client.cell("1")["isError"])  # those of the wrong calls are still ending
    assert "as many as --max-sessions allows" in text_of(client.cell("1"))


def test_sessions_of_clients_that_share_a_process(serve: Serve) -> None:
    """cellgate-mcp-http says that names tell them apart, where they share a token."""
    raw = serve("--max-sessions-per-client", "1", env={"CELLGATE_HTTP_SESSION": "0000002asn"})
    client = Stateless(raw)
    id = client.cell("1")["structuredContent"]["session_id"]
    refused = text_of(client.cell("2"))
    assert "1 sessions of this client, as many as --max-sessions-per-client allows, the oldest opened" in refused
    assert id not in refused and "--idle" in refused
    other = meta()
    other["io.modelcontextprotocol/clientInfo"] = {"name": "other", "version": "1"}
    params = {"name": "execute_ipython_cell", "arguments": {"code": "1"}, "_meta": other}
    assert not raw.result(raw.request("tools/call", params))["isError"]


def test_a_session_that_nothing_connects_ends_when_it_is_idle(serve: Serve) -> None:
    """Also without the toolset `sessions`, by which an agent could end it."""
    client = Stateless(serve("--max-sessions", "1", "--idle", "0.5", env={"CELLGATE_HTTP_SESSION": "0000002as"}))
    id = client.cell("1")["structuredContent"]["session_id"]
    eventually(lambda: not client.cell("2")["isError"])
    assert "it was idle for 0.5 s" in text_of(client.call("execute_ipython_cell", code="1", session_id=id))


class Named(Stateless):
    """One of several clients of a process."""

    def __init__(self, server: Raw, name: str) -> None:
        super().__init__(server)
        self.name = name

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        client = {META + "clientInfo": {"name": self.name, "version": "1"}} if self.name else {}
        params = {"name": tool, "arguments": arguments, "_meta": meta(**client)}
        return self.server.result(self.server.request("tools/call", params))

    def run(self, code: str, **more: Any) -> tuple[str, str]:
        """The text of a cell, and its session."""
        result = self.call("execute_ipython_cell", code=code, **more)
        assert not result["isError"], result
        return text_of(result), result["structuredContent"]["session_id"]


@pytest.fixture
def shared_process(serve: Serve) -> Raw:
    words = ["--toolsets", "core,jobs,sessions,inspect"]
    return serve(*words, env={"CELLGATE_HTTP_SESSION": "0000002asn"})


def test_two_agents_do_not_meet_by_accident(shared_process: Raw) -> None:
    """Neither by an id that both have read, nor by numbers that can be guessed, nor in lists."""
    alice, bob = Named(shared_process, "alice"), Named(shared_process, "bob")
    _, id = alice.run("x = 'of alice'; x")
    _, own = bob.run("x = 'of bob'")
    for tool, arguments in (
        ("execute_ipython_cell", {"code": "x"}),
        ("start_cell", {"code": "x"}),
        ("reset", {}),
        ("terminate_session", {}),
        ("list_variables", {}),
        ("read_output", {}),
        ("execute_ipython_cell", {"code": "x", "attach": False}),
    ):
        result = bob.call(tool, session_id=id, **arguments)
        assert result["isError"] and 'of another client, "alice"' in text_of(result), tool
    for tool in ("cell_result", "cell_status", "cancel_cell"):
        text = text_of(bob.call(tool, execution_id="cell-1"))
        assert "of alice" not in text and "cell-1 was dropped" in text and text.endswith("Known: cell-2")
    assert id not in text_of(bob.call("list_sessions")) and own in text_of(bob.call("list_sessions"))
    assert alice.run("x", session_id=id)[0] == "'of alice'"
    assert "shared" not in text_of(alice.call("list_sessions"))


def test_a_session_is_shared_on_purpose_and_both_are_told(shared_process: Raw) -> None:
    alice, bob, carol = (Named(shared_process, name) for name in ("alice", "bob", "carol"))
    _, id = alice.run("x = 'of alice'")
    text, same = bob.run("x", session_id=id, attach=True)
    assert same == id and text.startswith("'of alice'") and 'This session is shared with "alice": cells of all' in text
    assert bob.run("x", session_id=id)[0] == "'of alice'"  # told once, and attach need not be said again
    assert 'shared with "bob"' in text_of(alice.call("cell_result", execution_id="cell-1"))
    assert alice.run("x", session_id=id)[0] == "'of alice'"
    carol.run("x", session_id=id, attach=True)
    for member, others in ((alice, '"bob", "carol"'), (bob, '"alice", "carol"')):
        assert f"shared with {others}" in member.run("x", session_id=id)[0]
    assert "of another client" in text_of(Named(shared_process, "dave").call("reset", session_id=id))
    assert "no such session" in text_of(bob.call("execute_ipython_cell", code="1", session_id="0" * 32, attach=True))


def test_a_client_without_a_name_that_knows_the_id(shared_process: Raw) -> None:
    """Clients that do not say who they are cannot be told apart; nor do they see what is in lists and numbers."""
    alice, nobody = Named(shared_process, "alice"), Named(shared_process, "")
    _, id = alice.run("x = 1")
    assert id not in text_of(nobody.call("list_sessions"))
    assert "dropped" in text_of(nobody.call("cell_result", execution_id="cell-1"))
    assert nobody.run("x", session_id=id)[0] == "1" and alice.run("x", session_id=id)[0] == "1"
