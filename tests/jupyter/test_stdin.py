"""input(): who is asked, who may answer, and what happens to answers that come too late."""

from __future__ import annotations

from typing import Any

Message = dict[str, Any]


def answer(client: Any, question: Message | None, value: Any, named: bool = True) -> None:
    """With the question's header as parent, as JupyterLab does; or without, as jupyter_client does."""
    client.send("stdin", "input_reply", {"value": value}, parent=question if named else None)


def test_input(client: Any) -> None:
    for named in (True, False):
        request = client.start("x = input('name? '); print('got', x)", allow_stdin=True)
        question = client.receive("stdin")
        assert question["msg_type"] == "input_request"
        assert question["content"] == {"prompt": "name? ", "password": False}
        assert question["parent_header"]["msg_id"] == request
        answer(client, question, "bob", named)
        assert client.finish(request).text() == "got bob\n"


def test_password(client: Any) -> None:
    request = client.start("import getpass; len(getpass.getpass('pw '))", allow_stdin=True)
    question = client.receive("stdin")
    assert question["content"] == {"prompt": "pw ", "password": True}
    answer(client, question, "sécret")
    assert client.finish(request).result() == "6"


def test_end_of_file(client: Any) -> None:
    request = client.start("input()", allow_stdin=True)
    answer(client, client.receive("stdin"), "\x04")
    assert client.finish(request).content["ename"] == "EOFError"


def test_not_allowed(client: Any) -> None:
    run = client.run("input()")
    assert run.content["ename"] == "StdinNotImplementedError"
    client.nothing("stdin", 0.1)


def test_output_comes_before_the_question(client: Any) -> None:
    request = client.start("print('first'); input()", allow_stdin=True)
    question = client.receive("stdin")
    seen = []
    while not seen or seen[-1]["msg_type"] != "stream":
        seen.append(client.receive("iopub"))
    answer(client, question, "")
    client.finish(request)


def test_only_who_runs_the_cell_is_asked_and_may_answer(kernel: Any, client: Any) -> None:
    other = kernel.client()
    request = client.start("input('? ')", allow_stdin=True)
    question = client.receive("stdin")
    other.nothing("stdin", 0.1)
    answer(other, question, "theirs")
    answer(other, question, "theirs", named=False)
    client.nothing("shell", 0.2)
    answer(client, question, "ours")
    assert client.finish(request).result() == "'ours'"


def test_interrupted_question(client: Any) -> None:
    request = client.start("input('? ')", allow_stdin=True)
    stale = client.receive("stdin")
    client.ask("interrupt_request", channel="control")
    assert client.finish(request).content["ename"] == "KeyboardInterrupt"
    request = client.start("input('again? ')", allow_stdin=True)
    question = client.receive("stdin")
    answer(client, stale, "late")  # says that it is for the first
    client.nothing("shell", 0.2)
    answer(client, question, "right")
    assert client.finish(request).result() == "'right'"


def test_answer_without_a_name_after_an_interrupt(client: Any) -> None:
    """The interrupted client drops the first question, and answers the second."""
    request = client.start("input('? ')", allow_stdin=True)
    client.receive("stdin")
    client.ask("interrupt_request", channel="control")
    client.finish(request)
    request = client.start("input('again? ')", allow_stdin=True)
    client.receive("stdin")
    answer(client, None, "second", named=False)
    assert client.finish(request).result() == "'second'"


def test_interrupt_at_a_debugger(client: Any) -> None:
    for debugger in ("import pdb; pdb.set_trace()", "breakpoint()"):
        client.run("x = 5")
        request = client.start(f"x += 1\n{debugger}\nx += 1", allow_stdin=True)
        assert client.receive("stdin")["content"]["prompt"] == "ipdb> "
        client.ask("interrupt_request", channel="control")
        assert client.finish(request).content["status"] == "ok"  # as with ipykernel: it goes on without the debugger
        request = client.start("breakpoint()", allow_stdin=True)
        answer(client, client.receive("stdin"), "p x + 100")
        answer(client, client.receive("stdin"), "c")
        run = client.finish(request)
        assert run.content["status"] == "ok" and "107" in run.text()
        assert client.run("x").result() == "7"


def test_an_answer_to_a_question_that_was_taken_back(client: Any) -> None:
    request = client.start("try: input('a')\nexcept KeyboardInterrupt: print('got', input('b'))", allow_stdin=True)
    stale = client.receive("stdin")
    client.ask("interrupt_request", channel="control")
    question = client.receive("stdin")
    answer(client, stale, "to the first")
    answer(client, question, "to the second")
    assert client.finish(request).text() == "got to the second\n"


def test_answers_that_nobody_asked_for(client: Any) -> None:
    answer(client, None, "early", named=False)
    for content in ({}, {"value": 5}, {"value": None}):
        client.send("stdin", "input_reply", content)
    client.send("stdin", "execute_request", {"code": "x = 1"})
    request = client.start("input()", allow_stdin=True)
    question = client.receive("stdin")
    client.nothing("shell", 0.2)
    answer(client, question, "x")
    assert client.finish(request).result() == "'x'"


def test_answer_that_is_no_text_is_an_end_of_file(client: Any) -> None:
    request = client.start("input()", allow_stdin=True)
    answer(client, client.receive("stdin"), 5)
    assert client.finish(request).content["ename"] == "EOFError"


def test_client_that_leaves_its_question(kernel: Any, client: Any) -> None:
    gone = kernel.client()
    gone.start("input('? ')", allow_stdin=True)
    gone.receive("stdin")
    gone.close()
    request = client.start("6 * 7")
    client.nothing("shell", 0.2)
    client.ask("interrupt_request", channel="control")
    assert client.reply(request)["content"]["status"] == "aborted"
    assert client.run("6 * 7").result() == "42"
