"""Requests other than cells: each has exactly one reply, whatever the user's code does."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kernel.harness import Kernel, Zygote
from wire_table import KERNEL


def complete(kernel: Kernel, code: str, pos: int | None = None) -> dict[str, Any]:
    content = {"code": code} if pos is None else {"code": code, "cursor_pos": pos}
    reply = kernel.ask("complete_request", content)
    assert reply["status"] == "ok", reply
    return reply


def test_completion(kernel: Kernel) -> None:
    kernel.run("class Thing:\n    alpha = 1\n    def beta(self): pass\nthing = Thing()")
    reply = complete(kernel, "x = thing.al")
    assert reply["matches"] == ["alpha"]
    assert (reply["cursor_start"], reply["cursor_end"]) == (10, 12)
    (kind,) = reply["metadata"]["_jupyter_types_experimental"]
    assert (kind["text"], kind["start"], kind["end"]) == ("alpha", 10, 12)
    assert complete(kernel, "zi")["matches"] == ["zip"]
    assert "matches" in complete(kernel, "import o")
    assert complete(kernel, "%timei")["matches"] == ["%timeit", "%%timeit"]


def test_completion_is_as_good_as_ipykernels(kernel: Kernel) -> None:
    """completions.json: replies of ipykernel 7.4 with IPython 9.18 and Python 3.11."""
    table = json.loads((Path(__file__).parent / "completions.json").read_text())
    kernel.run(table["setup"])
    kernel.run("get_ipython().Completer.jedi_compute_type_timeout = 20_000")  # of a slow machine
    assert len(table["rows"]) > 35
    for row in table["rows"]:
        pos = row["code"].index("|")
        reply = complete(kernel, row["code"].replace("|", "", 1), pos)
        types = reply["metadata"]["_jupyter_types_experimental"]
        assert [c["text"] for c in types] == reply["matches"] == [text for text, _, _ in row["found"]], row["code"]
        assert (reply["cursor_start"], reply["cursor_end"]) == (row["start"], row["end"]), row["code"]
        assert [c["type"] for c in types] == [kind for _, kind, _ in row["found"]], row["code"]
        signed = [bool(c["signature"]) for c in types]
        assert signed == [bool(signature) for _, _, signature in row["found"]], row["code"]


def test_preparing_completion_ends_for_a_request(prefix: Path, workspace: Path) -> None:
    """In the middle of a part, which is taken again and continues with what has been parsed."""
    code = """
from cellgate_kernel import completion
completion.step(lambda: False)
asked, done = [], completion._done
early = completion.step(lambda: asked.append(1) or len(asked) > 50), completion.given_up(), completion._done - done
again = completion.step(lambda: False), completion.given_up(), completion._done - done
early, again, len(asked)
"""
    with Zygote(prefix) as zygote, zygote.spawn(workspace) as kernel:  # not one that has prepared it
        assert kernel.run(code).result == "((True, True, 0), (True, False, 1), 51)"
        assert complete(kernel, "import os\nos.path.joi")["matches"] == ["join"]


def test_completion_writes_and_reads_no_files(kernel: Kernel) -> None:
    """jedi's cache consists of pickles, which run code when they are loaded."""
    complete(kernel, "import json\njson.du")
    code = "import os\n[n for _, _, f in os.walk(os.path.expanduser('~')) for n in f if n.endswith('.pkl')]"
    assert kernel.run(code).result == "[]"
    assert kernel.run("import parso.cache\nparso.cache.load_module.__globals__['_load_from_file_system']()").result is None


def test_completion_touches_no_cache_folder(kernel: Kernel) -> None:
    """The zygote completes as well: links in that folder, which cells may have made, would lead it anywhere."""
    kernel.run(
        "import jedi, os, pathlib\nelsewhere, cache = pathlib.Path('elsewhere'), pathlib.Path('cache')\n"
        "elsewhere.mkdir(); cache.mkdir(); (elsewhere / 'old').touch(); os.utime(elsewhere / 'old', (0, 0))\n"
        "(cache / 'link').symlink_to('../elsewhere'); (cache / 'PARSO-CACHE-LOCK').symlink_to('../elsewhere/new')\n"
        "jedi.settings.cache_directory = cache"
    )
    complete(kernel, "import plistlib\nplistlib.du")
    assert kernel.run("os.listdir('elsewhere')").result == "['old']"


def test_completion_counts_characters_not_bytes(kernel: Kernel) -> None:
    kernel.run("name_with_a_tail = 1")
    reply = complete(kernel, "'\U0001f600\u20ac'; name_with")
    assert reply["matches"] == ["name_with_a_tail"]
    assert (reply["cursor_start"], reply["cursor_end"]) == (6, 15)


def test_cursor_outside_the_code(kernel: Kernel) -> None:
    for pos in (-5, 10_000, 0):
        reply = complete(kernel, "zi", pos)
        assert 0 <= reply["cursor_start"] <= reply["cursor_end"] <= 2, pos


def test_nothing_to_complete(kernel: Kernel) -> None:
    assert complete(kernel, "nosuchname_at_all.x")["matches"] == []


@pytest.mark.parametrize(
    "code",
    [
        "class Evil:\n    def __dir__(self): raise ValueError",
        "class Evil:\n    def __dir__(self): raise SystemExit",
        "class Evil:\n    def __dir__(self): return [1, None, '\\ud800', 'fine']",
        "class Evil:\n    def __getattr__(self, name): raise KeyboardInterrupt",
        "class Evil:\n    __dir__ = None",
    ],
)
def test_hostile_completion(kernel: Kernel, code: str) -> None:
    kernel.run(code + "\nevil = Evil()")
    assert kernel.ask("complete_request", {"code": "evil.", "cursor_pos": 5})["status"] in ("ok", "error")
    assert kernel.run("1").result == "1"


@pytest.mark.parametrize(("code", "expected"), [("zi", {"zip"}), ("x = my_n", {"my_name"}), ("zip.zi", set())])
def test_names_are_completed_when_jedi_takes_too_long(kernel: Kernel, code: str, expected: set[str]) -> None:
    kernel.run(
        "import jedi, time\nmy_name = 1\n"
        "def slow(*_, **__):\n    print('begun', flush=True)\n    time.sleep(60)\n"
        "jedi.Interpreter.complete = jedi.api.Completion.complete = slow"
    )
    ident = kernel.request("complete_request", {"code": code})
    kernel.wait_for_text("begun")
    kernel.interrupt(ident)
    content, _ = kernel.reply(ident)
    assert sorted(content["matches"]) == sorted(expected) and content["status"] == "ok"
    assert content["cursor_end"] == len(code)


def test_interrupted_completion_still_answers(kernel: Kernel) -> None:
    kernel.run(
        "class Slow:\n    def __dir__(self):\n        print('in', flush=True)\n        while True: pass\ns = Slow()"
    )
    ident = kernel.request("complete_request", {"code": "s.", "cursor_pos": 2})
    kernel.wait_for_text("in")
    kernel.interrupt(ident)
    reply, _ = kernel.reply(ident)
    assert (reply["status"], reply["matches"]) == ("ok", [])
    assert kernel.run("1").result == "1"


def test_an_interrupt_of_another_request_is_ignored(kernel: Kernel) -> None:
    ident = kernel.request("inspect_request", {"code": "zip"})
    kernel.interrupt(ident + 1)
    assert kernel.reply(ident)[0]["found"] is True
    assert kernel.run("import time; time.sleep(0.05); 1").result == "1"


def test_output_of_a_request_is_its_own(kernel: Kernel) -> None:
    kernel.run("class Loud:\n    def __dir__(self):\n        print('noise')\n        return ['a']\nl = Loud()")
    ident = kernel.request("complete_request", {"code": "l."})
    _, messages = kernel.reply(ident)
    assert messages and {(m.type, m.id) for m in messages} == {("STREAM", ident)}


def test_inspection(kernel: Kernel) -> None:
    reply = kernel.ask("inspect_request", {"code": "zip", "cursor_pos": 2})
    assert reply["status"] == "ok" and reply["found"] is True
    assert "Init signature" in reply["data"]["text/plain"] and "text/html" in reply["data"]
    assert kernel.ask("inspect_request", {"code": "nosuch", "cursor_pos": 3}) == {
        "status": "ok",
        "found": False,
        "data": {},
        "metadata": {},
    }


def test_inspection_in_detail(kernel: Kernel) -> None:
    kernel.run("def somefunction():\n    return 'the body'")
    code = "somefunction(1, "
    plain = kernel.ask("inspect_request", {"code": code, "cursor_pos": len(code)})["data"]["text/plain"]
    assert "Signature" in plain and "the body" not in plain
    more = kernel.ask("inspect_request", {"code": code, "cursor_pos": 4, "detail_level": 1})
    assert "the body" in more["data"]["text/plain"]


def test_is_complete(kernel: Kernel) -> None:
    def ask(code: str) -> dict[str, Any]:
        return kernel.ask("is_complete_request", {"code": code})

    for code in ("1", "print('hello, world')", "def f(x):\n  return x*2\n\n\n", ""):
        assert ask(code)["status"] == "complete", code
    assert ask("print('''hello")["status"] == "incomplete"
    assert ask("def f(x):\n  x*2") == {"status": "incomplete", "indent": "  "}
    assert ask("import = 7q") == {"status": "invalid"}


def history(kernel: Kernel, **content: Any) -> list[Any]:
    reply = kernel.ask("history_request", {"raw": True, "output": False} | content)
    assert reply["status"] == "ok", reply
    return reply["history"]  # type: ignore[no-any-return]


def test_history(kernel: Kernel) -> None:
    for code in ("a = 1", "a + 1", "%who", "a = 1"):
        kernel.run(code)
    kernel.run("secret = 1", store_history=False)
    kernel.run("secret = 2", silent=True)
    assert [h[1:] for h in history(kernel, hist_access_type="tail", n=2)] == [[3, "%who"], [4, "a = 1"]]
    assert [h[2] for h in history(kernel, hist_access_type="tail")] == ["a = 1", "a + 1", "%who", "a = 1"]
    assert [h[2] for h in history(kernel, hist_access_type="range", session=0, start=2, stop=4)] == ["a + 1", "%who"]
    assert [h[2] for h in history(kernel, hist_access_type="search", pattern="a*")] == ["a = 1", "a + 1", "a = 1"]
    assert len(history(kernel, hist_access_type="search", pattern="a = ?", unique=True)) == 1
    assert len(history(kernel, hist_access_type="search", pattern="a*", n=2)) == 2
    assert history(kernel, hist_access_type="tail", n=1, raw=False)[0][2] == "a = 1"
    assert "get_ipython()" in history(kernel, hist_access_type="range", start=3, stop=4, raw=False)[0][2]


def test_history_with_output(kernel: Kernel) -> None:
    kernel.run("40 + 2")
    kernel.run("x = 1")
    assert [h[2] for h in history(kernel, hist_access_type="range", output=True)] == [["40 + 2", "42"], ["x = 1", None]]
    assert [h[2] for h in history(kernel, hist_access_type="tail", n=2, output=True)] == [
        ["40 + 2", "42"],
        ["x = 1", None],
    ]


def test_history_has_no_output_of_a_cell_that_does_not_count(kernel: Kernel) -> None:
    kernel.run("'not remembered'", store_history=False)
    kernel.run("x = 1")
    assert [h[2] for h in history(kernel, hist_access_type="range", output=True)] == [["x = 1", None]]


def test_history_begins_empty(kernel: Kernel) -> None:
    assert history(kernel, hist_access_type="tail", n=100) == []
    assert kernel.run("%history -g").out.strip().endswith("%history -g")


def test_history_needs_no_thread(kernel: Kernel) -> None:
    kernel.run("1")
    history(kernel, hist_access_type="tail")
    assert kernel.run("import threading; threading.active_count()").result == "1"


@pytest.mark.parametrize(
    ("kind", "content", "problem"),
    [
        ("complete_request", {}, 'no "code"'),
        ("complete_request", {"code": 5}, '"code" is int, expected str'),
        ("complete_request", {"code": "a", "cursor_pos": "1"}, '"cursor_pos" is str'),
        ("complete_request", {"code": "a", "cursor_pos": True}, '"cursor_pos" is bool'),
        ("inspect_request", {"cursor_pos": 1}, 'no "code"'),
        ("is_complete_request", {"code": None}, '"code" is NoneType'),
        ("history_request", {}, "hist_access_type"),
        ("history_request", {"hist_access_type": "all"}, "tail, range and search"),
        ("comm_info_request", {"target_name": 5}, "target_name"),
        ("comm_open", {"comm_id": "x"}, "target_name"),
        ("comm_msg", {"data": {}}, "comm_id"),
        ("complete_request", b"no json", "not JSON"),
        ("complete_request", b"[1]", "not a JSON object"),
        ("complete_request", b"[" * 100_000, "not JSON"),
        ("complete_request", b"\xff\xfe{}", "not JSON"),
    ],
)
def test_bad_requests(kernel: Kernel, kind: str, content: Any, problem: str) -> None:
    reply = kernel.ask(kind, content)
    assert (reply["status"], reply["ename"]) == ("error", "BadRequest")
    assert problem in reply["evalue"]


def test_unknown_request(kernel: Kernel) -> None:
    reply = kernel.ask("make_coffee_request", {})
    assert reply["status"] == "error" and "make_coffee_request" in reply["evalue"]


def test_unknown_subshell(kernel: Kernel) -> None:
    reply = kernel.ask("complete_request", {"code": "zi"}, subshell="nowhere")
    assert (reply["status"], reply["ename"]) == ("error", "UnknownSubshellError")
    r = kernel.run("1", subshell="nowhere")
    assert (r.reply["status"], r.reply["ename"], r.messages) == ("error", "UnknownSubshellError", [])


@pytest.mark.parametrize("body", [{}, {"type": 5}, {"type": "x" * 100}, {"type": "comm_msg", "subshell": 5}])
def test_a_request_that_breaks_the_wire_ends_the_kernel(kernel: Kernel, body: dict[str, Any]) -> None:
    kernel.send(KERNEL.REQUEST, 1, body, b"{}")
    assert kernel.wait_gone() == (71, 0)


@pytest.mark.parametrize(
    "code",
    [
        "import json\njson.loads = json.dumps = None",
        "import cellgate_kernel.requests as r\nr.Requests.answer = None",
        "get_ipython().Completer = None",
        "get_ipython().history_manager = None",
        "get_ipython().input_transformer_manager = None",
        "get_ipython().kernel = None",
        "import sys\nsys.setrecursionlimit(60)",
        "import builtins\ndel builtins.isinstance",
        "get_ipython().history_manager.db.close()",
    ],
)
def test_every_request_has_one_reply_whatever_a_cell_breaks(kernel: Kernel, code: str) -> None:
    kernel.run(code)
    for kind, content in (
        ("complete_request", {"code": "zi"}),
        ("inspect_request", {"code": "zip"}),
        ("is_complete_request", {"code": "1"}),
        ("history_request", {"hist_access_type": "tail"}),
        ("comm_info_request", {}),
        ("comm_open", {"comm_id": "1", "target_name": "x", "data": {}}),
    ):
        assert kernel.ask(kind, content)["status"] in ("ok", "error", "complete")
    assert kernel.run("1 + 1").status in ("ok", "error")


def test_requests_and_cells_in_order(kernel: Kernel) -> None:
    first = kernel.execute("x = 1")
    second = kernel.request("inspect_request", {"code": "x"})
    third = kernel.execute("x")
    assert kernel.collect(first).status == "ok"
    assert kernel.reply(second)[0]["found"] is True
    assert kernel.collect(third).result == "1"


# ------------------------------------------------------------------ members of requests and replies of cells


def test_user_expressions(kernel: Kernel) -> None:
    extra = {
        "user_expressions": {"a": "6 * 7", "b": "1 / 0", "c": "display", "d": "=", "e": "__import__('sys').exit()"}
    }
    r = kernel.run("x = 1", extra=extra)
    values = r.more["user_expressions"]
    assert values["a"] == {"status": "ok", "data": {"text/plain": "42"}, "metadata": {}}
    assert (values["b"]["status"], values["b"]["ename"]) == ("error", "ZeroDivisionError")
    assert values["c"]["status"] == "ok"
    assert values["d"]["ename"] == "SyntaxError"
    assert values["e"]["status"] == "error"
    assert r.of("ERROR") == []


def test_user_expressions_after_an_error_are_not_evaluated(kernel: Kernel) -> None:
    r = kernel.run("1/0", extra={"user_expressions": {"a": "print('evaluated')"}})
    assert r.more["user_expressions"] == {} and r.out == ""


def test_a_user_expression_can_be_interrupted(kernel: Kernel) -> None:
    code = "def spin():\n    print('in', flush=True)\n    while True: pass"
    cell = kernel.execute(code, extra={"user_expressions": {"a": "spin()", "b": "2"}})
    kernel.wait_for_text("in")
    kernel.interrupt(cell)
    r = kernel.collect(cell)
    assert r.more["user_expressions"]["a"]["ename"] == "KeyboardInterrupt"
    assert r.more["user_expressions"]["b"]["data"] == {"text/plain": "2"}


def test_metadata_reaches_the_hooks(kernel: Kernel) -> None:
    kernel.run("get_ipython().events.register('pre_run_cell', lambda info: print(info.cell_id, info.cell_meta))")
    r = kernel.run("pass", extra={"metadata": {"cellId": "c-1", "x": 2}})
    assert r.out == "c-1 {'cellId': 'c-1', 'x': 2}\n"
    assert kernel.run("pass").out == "None None\n"


@pytest.mark.parametrize("extra", [b"[]", b"{", b'{"metadata": 5}', b'{"user_expressions": [1]}', b'{"header": 1}'])
def test_bad_extra_is_the_cells_error(kernel: Kernel, extra: bytes) -> None:
    r = kernel.run("print('ran')", extra=extra)
    assert r.reply["ename"] == "BadRequest"
    assert kernel.run("1").result == "1"


def test_next_number(kernel: Kernel) -> None:
    assert kernel.run("1").reply["next"] == 2
    assert kernel.run("1", store_history=False).reply["next"] == 2
    assert kernel.run("1/0").reply["next"] == 3
    assert kernel.run("", silent=True).reply["next"] == 3


# ------------------------------------------------------------------ payloads


@pytest.fixture
def notebook(spawn: Callable[..., Kernel]) -> Kernel:
    return spawn(front="jupyter")


def payload(kernel: Kernel, code: str) -> list[dict[str, Any]]:
    r = kernel.run(code)
    assert r.status == "ok", r
    assert r.messages == []
    return r.more["payload"]  # type: ignore[no-any-return]


def test_pager_is_a_payload(notebook: Kernel) -> None:
    (page,) = payload(notebook, "zip?")
    assert (page["source"], page["start"]) == ("page", 0)
    assert "Init signature" in page["data"]["text/plain"]
    assert notebook.run("1").more == {}


def test_one_payload_of_a_source(notebook: Kernel) -> None:
    assert len(payload(notebook, "%psearch zi*\n%pinfo zip\n%pinfo int")) == 1


def test_next_input_is_a_payload(notebook: Kernel) -> None:
    (notebook.workspace / "f.py").write_text("a = 'from the file'\n")
    (p,) = payload(notebook, "%load f.py")
    assert p["source"] == "set_next_input" and p["replace"] is True and "from the file" in p["text"]


@pytest.mark.parametrize("code", ["exit", "quit", "exit()", "get_ipython().ask_exit()"])
def test_exit_is_a_payload(notebook: Kernel, code: str) -> None:
    assert payload(notebook, code) == [{"source": "ask_exit", "keepkernel": False}]


def test_exit_that_keeps_the_kernel(notebook: Kernel) -> None:
    assert payload(notebook, "quit(keep_kernel=True)") == [{"source": "ask_exit", "keepkernel": True}]


def test_payload_of_a_failed_cell(notebook: Kernel) -> None:
    r = notebook.run("get_ipython().set_next_input('x')\n1/0")
    assert [p["source"] for p in r.more["payload"]] == ["set_next_input"]
    assert r.more["ename"] == "ZeroDivisionError"


def test_payload_that_is_no_json(notebook: Kernel) -> None:
    r = notebook.run("get_ipython().payload_manager.write_payload({'source': object(), 'x': float('nan')})")
    assert "object" in json.dumps(r.more["payload"])


def test_sys_exit_in_a_notebook_has_no_word_for_agents(notebook: Kernel) -> None:
    assert "host application" not in str(notebook.run("import sys; sys.exit(3)").error)


# ------------------------------------------------------------------ usage


def test_usage(kernel: Kernel) -> None:
    reply = kernel.ask("usage_request", {})
    assert reply["status"] == "ok"
    assert reply["pid"] == int(kernel.run("import os; os.getpid()").result or 0)
    assert reply["hostname"] == str(kernel.run("import socket; socket.gethostname()").result).strip("'")
    assert reply["cpu_count"] >= 1
    assert 1 << 20 < reply["kernel_memory"] < 1 << 30
    memory = reply["host_virtual_memory"]
    assert 0 < memory["available"] <= memory["total"] and 0 <= memory["percent"] <= 100
    assert 0 <= reply["host_cpu_percent"] <= 100


def test_usage_counts_memory_and_processes(kernel: Kernel) -> None:
    before = kernel.ask("usage_request", {})["kernel_memory"]
    kernel.run("x = bytearray(b'x') * (64 << 20)")
    after = kernel.ask("usage_request", {})["kernel_memory"]
    assert after - before > 60 << 20
    kernel.run(
        "del x\nimport subprocess, sys\np = subprocess.Popen([sys.executable, '-c', 'x = bytearray(b\"x\") * (64 << 20); print(1, flush=True); input()'], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\np.stdout.readline()"
    )
    child = kernel.ask("usage_request", {})["kernel_memory"]
    assert child - before > 60 << 20


def test_usage_does_not_wait_for_cells(kernel: Kernel) -> None:
    cell = kernel.execute("print('in', flush=True)\nx = 10 ** 10_000_000", silent=True)  # holds the GIL
    kernel.wait_for_text("in")
    ident = kernel.request("usage_request", {})
    assert kernel.reply(ident)[0]["kernel_cpu"] >= 0
    kernel.interrupt(cell)


def test_usage_of_a_process_with_an_evil_name(kernel: Kernel) -> None:
    kernel.run("open('/proc/self/comm', 'w').write(') Z 1 2 (')")
    assert kernel.ask("usage_request", {})["kernel_memory"] > 1 << 20


def test_usage_without_a_sandbox_counts_our_own_only(spawn: Callable[..., Kernel]) -> None:
    kernel = spawn(sandbox=False)
    assert kernel.ask("usage_request", {})["kernel_memory"] < 500 << 20


def test_no_request_is_kept_with_its_buffers(kernel: Kernel) -> None:
    """The last requests are, for threads that ask for the message that started them."""
    before = int(kernel.run("size = lambda: int(open('/proc/self/statm').read().split()[1]) >> 8\nprint(size())").out)
    for _ in range(12):
        assert kernel.ask("set_variables", {"variables": {"x": "x" * (8 << 20)}})["status"] == "ok"
    assert int(kernel.run("print(size())").out) - before < 60  # MiB
