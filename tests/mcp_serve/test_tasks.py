"""The protocol's tasks (io.modelcontextprotocol/tasks of 2026-07-28): a call whose cell takes longer is a task."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp_serve.helpers import Raw, text_of
from mcp_serve.test_stateless import CODE, YES, Stateless
from processes import eventually, gate

Serve = Callable[..., Raw]
TASKS = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
ASKED = {**TASKS, "elicitation": {"form": {}}}
METHODS = ("tasks/get", "tasks/update", "tasks/cancel")
SLOW = "print('before', flush=True); open('go').read(); 6 * 7"


class Tasks(Stateless):
    def __init__(self, server: Raw, capabilities: object = ASKED) -> None:
        super().__init__(server, capabilities)

    def task(self, code: str, **arguments: object) -> str:
        """The id of the task that the cell is."""
        made = self.call("execute_ipython_cell", code=code, **arguments)
        assert made["resultType"] == "task" and made["status"] == "working", made
        assert not {"content", "result", "inputRequests", "requestState", "task"} & set(made)
        return made["taskId"]

    def get(self, id: str) -> dict[str, Any]:
        result = self.request("tasks/get", taskId=id)["result"]
        assert result["resultType"] == "complete" and result["taskId"] == id, result
        assert result["createdAt"] <= result["lastUpdatedAt"] and result["ttlMs"] > 0 < result["pollIntervalMs"]
        return result

    def until(self, id: str, status: str) -> dict[str, Any]:
        found: dict[str, Any] = {}

        def reached() -> bool:
            found.clear()
            found.update(self.get(id))
            return found["status"] == status

        eventually(reached)
        return found

    def update(self, id: str, answers: object) -> None:
        assert self.request("tasks/update", taskId=id, inputResponses=answers)["result"] == {"resultType": "complete"}

    def cancel(self, id: str) -> None:
        assert self.request("tasks/cancel", taskId=id)["result"] == {"resultType": "complete"}


@pytest.fixture
def quick(serve: Serve, mcp_file: Path) -> Tasks:
    """A call waits for half a second before it is a task."""
    return Tasks(serve("--mcp", mcp_file, "--approve", "ask", "--wait", "0.5"))


def test_a_cell_that_takes_longer_is_a_task(quick: Tasks, workspace: Path) -> None:
    assert "io.modelcontextprotocol/tasks" in quick.request("server/discover")["result"]["capabilities"]["extensions"]
    quick.call("start_cell", code="1")
    eventually(lambda: "has ended" in text_of(quick.call("cell_status", execution_id="cell-1")))
    assert text_of(quick.cell("1")) == "1"
    go = gate(workspace)
    id = quick.task(SLOW, nonsense=1)
    assert "runs for" in quick.get(id)["statusMessage"]
    go()
    done = quick.until(id, "completed")
    result = done["result"]
    assert "before\n42" in text_of(result) and "nonsense" in text_of(result)
    assert result["resultType"] == "complete" and result["structuredContent"]["status"] == "ok"
    assert quick.get(id)["createdAt"] == done["createdAt"] and quick.get(id)["result"] == result


def test_an_error_of_the_code_is_a_completed_task(quick: Tasks) -> None:
    done = quick.until(quick.task("import time; time.sleep(1); 1 / 0"), "completed")
    assert done["result"]["isError"] and "ZeroDivisionError" in text_of(done["result"])


def test_tasks_need_no_tools_for_jobs(serve: Serve, workspace: Path) -> None:
    client = Tasks(serve("--toolsets", "core"))
    go = gate(workspace)
    id = client.task(SLOW)
    go()
    assert "42" in text_of(client.until(id, "completed")["result"])


def test_tools_that_return_at_once_make_no_task(quick: Tasks, workspace: Path) -> None:
    go = gate(workspace)
    assert quick.call("start_cell", code=SLOW)["resultType"] == "complete"
    status = quick.call("cell_result", execution_id="cell-1", wait=0)["structuredContent"]["status"]
    assert status in ("queued", "running")
    go()


def test_a_task_is_cancelled(quick: Tasks) -> None:
    running, queued = quick.task("while True: pass"), quick.task("open('ran', 'w')")
    assert "is queued" in quick.get(queued)["statusMessage"]
    for id in (queued, running):
        quick.cancel(id)
        assert "result" not in quick.until(id, "cancelled")
        quick.cancel(id)  # the same again
    result = quick.until(quick.task("import os, time; time.sleep(1); os.path.exists('ran')"), "completed")["result"]
    assert text_of(result) == "False"


def test_notifications_cancel_no_task(quick: Tasks, workspace: Path) -> None:
    go = gate(workspace)
    id = quick.task(SLOW)
    quick.server.notify("notifications/cancelled", {"requestId": quick.server.last_id})
    go()
    assert "42" in text_of(quick.until(id, "completed")["result"])


def test_questions_are_the_tasks(serve: Serve, mcp_file: Path, mark: Path) -> None:
    """A question makes the task at once, and stays the same until it is answered."""
    client = Tasks(serve("--mcp", mcp_file, "--approve", "ask", "--wait", "600"))
    id = client.task(CODE)
    asked = client.until(id, "input_required")
    ((key, question),) = asked["inputRequests"].items()
    assert "leave_mark" in question["params"]["message"] and "approval of fake" in asked["statusMessage"]
    assert client.get(id)["inputRequests"] == asked["inputRequests"]
    for answers in ({}, {"q0": YES, key + "0": YES, key[:-1]: YES}):
        client.update(id, answers)
        assert client.get(id)["inputRequests"] == asked["inputRequests"] and not mark.exists()
    client.update(id, {key: YES})
    assert text_of(client.until(id, "completed")["result"]) == "'ran'" and mark.read_text() == "x\n"
    # An answer counts once, also for a later question.
    later = client.task(CODE)
    ((other, _),) = client.until(later, "input_required")["inputRequests"].items()
    client.update(later, {key: YES})
    client.update(id, {other: YES})
    assert client.get(later)["status"] == "input_required" and mark.read_text() == "x\n"
    client.update(later, {other: {"action": "decline"}})
    assert "rejected" in text_of(client.until(later, "completed")["result"]) and mark.read_text() == "x\n"


def test_questions_of_one_cell_are_answered_in_any_order(quick: Tasks, mark: Path) -> None:
    code = (
        "import asyncio\nfrom mcptools.fake import leave_mark\n"
        "await asyncio.gather(*(asyncio.to_thread(leave_mark.run, text=str(i)) for i in range(2)))"
    )
    id = quick.task(code)
    eventually(lambda: len(quick.get(id).get("inputRequests", {})) == 2)
    first, second = quick.get(id)["inputRequests"]
    quick.update(id, {second: YES})
    assert list(quick.until(id, "input_required")["inputRequests"]) == [first]
    quick.update(id, {first: YES})
    quick.until(id, "completed")
    assert len(mark.read_text().split()) == 2


def test_all_waiting_calls_are_those_of_the_first_form(quick: Tasks, mark: Path, workspace: Path) -> None:
    """Each look at the task shows the form anew, but the user may have the first one before them."""
    code = (
        "import asyncio, os\nfrom mcptools.fake import leave_mark\n"
        "async def late():\n    while not os.path.exists('late'): await asyncio.sleep(0.01)\n"
        "    await leave_mark.run_async(text='late')\n"
        "await asyncio.gather(*(leave_mark.run_async(text=str(i)) for i in range(2)), late(), return_exceptions=True)"
    )
    id = quick.task(code)
    eventually(lambda: len(quick.get(id).get("inputRequests", {})) == 2)
    key, form = next((k, q) for k, q in quick.get(id)["inputRequests"].items() if "approve all" in str(q))
    (choice,) = [
        c for c in form["params"]["requestedSchema"]["properties"]["decision"]["enum"] if c.startswith("approve all")
    ]
    assert choice == "approve all 2 calls of this tool that are shown"
    (workspace / "late").touch()
    eventually(lambda: len(quick.get(id)["inputRequests"]) == 3)
    again = quick.get(id)["inputRequests"]
    assert again[key]["params"]["requestedSchema"] == form["params"]["requestedSchema"]
    quick.update(id, {key: {"action": "accept", "content": {"decision": choice}}})
    ((last, _),) = quick.until(id, "input_required")["inputRequests"].items()
    assert last not in (key, *list(again)[:2])
    quick.update(id, {last: {"action": "decline"}})
    quick.until(id, "completed")
    assert sorted(mark.read_text().split()) == ["0", "1"]


@pytest.mark.parametrize("answer", [{"action": "cancel"}, {"action": "accept"}, {}, None, YES["content"]])
def test_all_but_a_clear_yes_is_a_no(quick: Tasks, mark: Path, answer: object) -> None:
    id = quick.task(CODE)
    ((key, _),) = quick.until(id, "input_required")["inputRequests"].items()
    quick.update(id, {key: answer})
    assert "RejectedError" in text_of(quick.until(id, "completed")["result"]) and not mark.exists()


def test_who_declares_no_forms_neither_sees_nor_answers_questions(quick: Tasks, mark: Path) -> None:
    id = quick.task(CODE)
    ((key, _),) = quick.until(id, "input_required")["inputRequests"].items()
    formless = Tasks(quick.server, TASKS)
    assert formless.get(id)["status"] == "working" and "inputRequests" not in formless.get(id)
    formless.update(id, {key: YES})
    assert key in quick.until(id, "input_required")["inputRequests"] and not mark.exists()
    quick.cancel(id)
    quick.until(id, "cancelled")
    assert not mark.exists()


def test_a_question_that_nobody_answers_ends_by_its_time_limit(serve: Serve, mcp_file: Path, mark: Path) -> None:
    client = Tasks(serve("--mcp", mcp_file, "--approve", "ask", "--ask-timeout", "1"))
    done = client.until(client.task(CODE), "completed")
    assert "did not answer in time" in text_of(done["result"]) and not mark.exists()


def test_an_installation_is_a_task(serve: Serve) -> None:
    client = Tasks(serve("--approve", "ask", "--toolsets", "core"))
    id = client.call("install_package", package_name="six")["taskId"]
    ((key, question),) = client.until(id, "input_required")["inputRequests"].items()
    assert "six" in question["params"]["message"]
    client.update(id, {key: {"action": "decline"}})
    assert client.until(id, "completed")["result"]["isError"]


def test_input_of_a_task(quick: Tasks) -> None:
    id = quick.task("input('name? ')")
    ((key, _),) = quick.until(id, "input_required")["inputRequests"].items()
    quick.update(id, {key: {"action": "accept", "content": {"text": "Ann"}}})
    assert text_of(quick.until(id, "completed")["result"]) == "'Ann'"


def test_input_that_the_agent_gives_is_no_task(serve: Serve) -> None:
    """Its client waits for a task by itself, so that the agent could not call send_input."""
    client = Tasks(serve("--wait", "1"), TASKS)
    result = client.cell("input('name? ')")
    assert result["resultType"] == "complete" and "send_input" in text_of(result)


def test_what_is_no_task(serve: Serve, workspace: Path) -> None:
    client = Tasks(serve("--wait", "0.5"))
    go = gate(workspace)
    id = client.task(SLOW)
    started = client.call("start_cell", code="1")["structuredContent"]["execution_id"]
    others = [id[:-1], id + "1", id + " ", id.replace("-1", "-01"), "cell-1", "", "x" * 3000]
    others += [f"{id[:32]}-{started[5:]}", ("0" if id[0] != "0" else "1") + id[1:]]
    for method in METHODS:
        for other in others:
            error = client.request(method, taskId=other, inputResponses={})["error"]
            assert error["code"] == -32602, (method, other)
        assert client.request(method, inputResponses={})["error"]["code"] == -32602
    assert client.request("tasks/update", taskId=id)["error"]["code"] == -32602
    for method in ("tasks/list", "tasks/result"):
        assert client.request(method, taskId=id)["error"]["code"] == -32601
    assert client.get(id)["status"] == "working"
    go()
    client.until(id, "completed")


@pytest.mark.parametrize(
    "capabilities",
    [
        {},
        {"extensions": {}},
        {"extensions": {"io.modelcontextprotocol/tasks": True}},
        {"extensions": {"io.modelcontextprotocol/task": {}}},
        {"tasks": {}, "experimental": {"io.modelcontextprotocol/tasks": {}}},
    ],
)
def test_clients_that_declare_no_tasks_have_none(quick: Tasks, capabilities: object, workspace: Path) -> None:
    go = gate(workspace)
    id = quick.task(SLOW)
    other = Stateless(quick.server, capabilities)
    for method in METHODS:
        error = other.request(method, taskId=id, inputResponses={})["error"]
        assert error["code"] == -32021
        assert error["data"] == {"requiredCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}
    error = other.request("subscriptions/listen", notifications={"taskIds": [id]})["error"]
    assert error["code"] == -32021
    result = other.cell("1")  # behind the task
    assert result["resultType"] == "complete" and "queued" in text_of(result)
    go()
    quick.until(id, "completed")


def test_older_revisions_have_none(serve: Serve, workspace: Path) -> None:
    server = serve("--wait", "0.5")
    server.send({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {**TASKS, "tasks": {}}, "clientInfo": {"name": "t"}}})  # fmt: skip
    assert not {"tasks", "extensions"} & set(server.receive()["result"]["capabilities"])
    go = gate(workspace)
    assert "cell_result" in server.ask("execute_ipython_cell", code=SLOW)
    go()
    assert server.answer(server.request("tasks/get", {"taskId": "x"}))["error"]["code"] == -32601


def test_approvers_have_no_tasks(serve: Serve) -> None:
    client = Tasks(serve("--toolsets", "approvals", env={"CELLGATE_PRIVATE": ""}))
    assert "extensions" not in client.request("server/discover")["result"]["capabilities"]
    assert client.request("tasks/get", taskId="x")["error"]["code"] == -32601


def test_a_task_ends_with_its_session(serve: Serve) -> None:
    client = Tasks(serve("--wait", "0.5", "--toolsets", "core,jobs,sessions"))
    session = client.call("create_session")["structuredContent"]["session_id"]
    id = client.task("while True: pass", session_id=session)
    assert id.startswith(session)
    client.call("terminate_session", session_id=session)
    assert client.request("tasks/get", taskId=id)["error"]["code"] == -32602
