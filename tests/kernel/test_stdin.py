"""input(), getpass() and sys.stdin."""

from kernel.harness import Kernel, Message
from wire_table import KERNEL


def answering(kernel: Kernel, *lines: str | None, prompts: list[dict[str, object]] | None = None):  # type: ignore[no-untyped-def]
    todo = list(lines)

    def on(message: Message) -> None:
        if message.type == "INPUT_REQUEST":
            if prompts is not None:
                prompts.append(message.json)
            kernel.answer_input(message.id, todo.pop(0))

    return on


def test_input(kernel: Kernel) -> None:
    prompts: list[dict[str, object]] = []
    r = kernel.run(
        "input('name? '), input()", on=answering(kernel, "Ada \u20ac", "", prompts=prompts), allow_stdin=True
    )
    assert r.result == "('Ada \u20ac', '')"
    assert prompts == [{"prompt": "name? ", "password": False}, {"prompt": "", "password": False}]


def test_output_comes_before_the_question(kernel: Kernel) -> None:
    cell = kernel.execute("print('first')\ninput('then')", allow_stdin=True)
    text = b""
    while (message := kernel.receive()).type == "STREAM":  # a busy machine may send one print() in two pieces
        text += message.raw
    assert text == b"first\n"
    assert message.type == "INPUT_REQUEST"
    assert message.json["prompt"] == "then"
    kernel.answer_input(cell, "x")
    assert kernel.collect(cell).result == "'x'"


def test_end_of_file(kernel: Kernel) -> None:
    assert kernel.run("input()", on=answering(kernel, None), allow_stdin=True).reply["ename"] == "EOFError"


def test_getpass(kernel: Kernel) -> None:
    prompts: list[dict[str, object]] = []
    r = kernel.run(
        "import getpass\ngetpass.getpass('secret: ')", on=answering(kernel, "pw", prompts=prompts), allow_stdin=True
    )
    assert r.result == "'pw'"
    assert prompts == [{"prompt": "secret: ", "password": True}]


def test_sys_stdin(kernel: Kernel) -> None:
    r = kernel.run(
        "import sys\nsys.stdin.readline(), sys.stdin.read()",
        on=answering(kernel, "a", "b", "c", None),
        allow_stdin=True,
    )
    assert r.result == r"('a\n', 'b\nc\n')"


def test_not_allowed(kernel: Kernel) -> None:
    r = kernel.run("input('x')")
    assert r.reply["ename"] == "StdinNotImplementedError"
    assert "allow_stdin" in r.reply["evalue"]
    assert kernel.run("import sys; sys.stdin.read()").result == "''"
    assert kernel.run("import getpass; getpass.getpass()").reply["ename"] == "StdinNotImplementedError"


def test_going_around_python_is_not_allowed_either(kernel: Kernel) -> None:
    r = kernel.run("import _cellgate\n_cellgate.input('{}')")
    assert r.reply["ename"] == "RuntimeError"
    assert not r.of("INPUT_REQUEST")


def test_interrupt_while_waiting(kernel: Kernel) -> None:
    cell = kernel.execute("input('x')", allow_stdin=True)
    kernel.expect("INPUT_REQUEST")
    kernel.interrupt(cell)
    assert kernel.collect(cell).reply["ename"] == "KeyboardInterrupt"
    kernel.answer_input(cell, "too late")
    kernel.answer_input(cell + 1, "too early", kernel.question + 1)
    r = kernel.run("input('y')", on=answering(kernel, "in time"), allow_stdin=True)
    assert r.result == "'in time'"


def test_an_interrupt_takes_the_question_back(kernel: Kernel) -> None:
    code = "try: input('a')\nexcept KeyboardInterrupt: print(input('b'))"
    cell = kernel.execute(code, allow_stdin=True)
    first = kernel.expect("INPUT_REQUEST")
    kernel.interrupt(cell)
    assert kernel.expect("INPUT_CANCEL").body == first.body
    second = kernel.expect("INPUT_REQUEST")
    assert second.body["question"] > first.body["question"]
    kernel.answer_input(cell, "to the first", first.body["question"])
    kernel.answer_input(cell, "to the second")
    assert kernel.collect(cell).out == "to the second\n"


def test_a_thread_that_asks_does_not_block_later_cells(kernel: Kernel) -> None:
    cell = kernel.execute(
        "import threading\nt = threading.Thread(target=lambda: print(repr(input())))\nt.start()", allow_stdin=True
    )
    kernel.collect(cell)
    r = kernel.run("t.join()\ninput()", on=answering(kernel, "next"), allow_stdin=True)
    assert r.result == "'next'"


def test_reply_that_nobody_waits_for(kernel: Kernel) -> None:
    kernel.send(KERNEL.INPUT_REPLY, 1, {"eof": False}, b"x")
    assert kernel.run("1").result == "1"


def test_input_in_a_thread(kernel: Kernel) -> None:
    r = kernel.run(
        "import threading\nbox = []\nts = [threading.Thread(target=lambda: box.append(input())) for _ in range(3)]\n"
        "for t in ts: t.start()\nfor t in ts: t.join()\nsorted(box)",
        on=answering(kernel, "a", "b", "c"),
        allow_stdin=True,
    )
    assert r.result == "['a', 'b', 'c']"


def test_prompt_with_lone_surrogate(kernel: Kernel) -> None:
    r = kernel.run("input('\\ud800')", on=answering(kernel, "ok"), allow_stdin=True)
    assert r.result == "'ok'"


def test_breakpoint(kernel: Kernel) -> None:
    r = kernel.run("x = 5\nbreakpoint()\nx", on=answering(kernel, "p x + 1", "c"), allow_stdin=True, timeout=20)
    assert "6\n" in r.out
    assert r.result == "5"


def test_breakpoint_without_input_ends(kernel: Kernel) -> None:
    kernel.run("breakpoint()", timeout=20)
    assert kernel.run("1").result == "1"
