"""Results, errors, counts, displays and magics of cells."""

import base64
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from kernel.harness import Kernel


def test_ready_names_the_versions(kernel: Kernel) -> None:
    assert kernel.ready.id == 0
    assert kernel.ready.body["python"].startswith("3.")
    assert kernel.ready.body["ipython"].startswith("9.")


def test_result(kernel: Kernel) -> None:
    r = kernel.run("40 + 2")
    assert r.reply == {"status": "ok", "execution_count": 1, "next": 2, "refused": False, "commands": 0}
    assert r.more == {}
    (message,) = r.messages
    assert message.json == {"execution_count": 1, "data": {"text/plain": "42"}, "metadata": {}}


def test_variables_stay(kernel: Kernel) -> None:
    kernel.run("x = 20")
    assert kernel.run("x += 1\nx").result == "21"


def test_warm_up_left_no_trace(kernel: Kernel) -> None:
    r = kernel.run("print(sorted(n for n in globals() if not n.startswith('_')), _, Out, In)")
    assert r.out.startswith("['In', 'Out', 'exit', 'get_ipython', 'open', 'quit']  {} ['', ")
    assert kernel.run("__doc__ in (None, get_ipython().user_module.__doc__)").result == "True"
    assert kernel.run("import sys; hasattr(sys, 'last_value'), sys.argv").result == "(False, [''])"


@pytest.mark.parametrize("code", ["1;", "x = 1", "", "   ", "# nothing", "None", "1 ;  # quiet"])
def test_no_result(kernel: Kernel, code: str) -> None:
    r = kernel.run(code)
    assert r.status == "ok"
    assert r.messages == []


def test_semicolon_inside_does_not_silence(kernel: Kernel) -> None:
    assert kernel.run("a = ';'; a").result == "';'"


def test_counts(kernel: Kernel) -> None:
    assert kernel.run("1").reply["execution_count"] == 1
    r = kernel.run("2", store_history=False)
    assert r.of("EXECUTE_RESULT")[0].json["execution_count"] == 2  # the next cell has the same number
    assert kernel.run("Out", store_history=False).result == "{1: 1, 2: 2}"
    assert kernel.run("3", silent=True).reply["execution_count"] == 1
    assert kernel.run("4").reply["execution_count"] == 2
    assert kernel.run("").reply["execution_count"] == 2


def test_silent_prints_but_has_no_result(kernel: Kernel) -> None:
    r = kernel.run("print(1)\n2", silent=True)
    assert r.out == "1\n"
    assert r.result is None


@pytest.mark.parametrize("value", ["1", "'a'", "1.5", "True", "b'x'", "1j", "[1, 'a', None]", "{'k': (1,)}"])
def test_plain_values_read_as_repr(kernel: Kernel, value: str) -> None:
    assert kernel.run(value).result == value


def test_registered_formatter_wins_over_the_fast_path(kernel: Kernel) -> None:
    kernel.run("get_ipython().display_formatter.formatters['text/html'].for_type(int, lambda i: f'<b>{i}</b>')")
    assert kernel.run("7").of("EXECUTE_RESULT")[0].json["data"] == {"text/plain": "7", "text/html": "<b>7</b>"}
    kernel.run("%precision 2")
    assert kernel.run("3.14159").result == "3.14"


def test_previous_results(kernel: Kernel) -> None:
    kernel.run("5")
    kernel.run("6")
    assert kernel.run("(_, __, _1, Out[2])").result == "(6, 5, 5, 6)"


def test_error(kernel: Kernel) -> None:
    r = kernel.run("def f():\n    return 1 / 0\nf()")
    assert r.reply == {
        "status": "error",
        "execution_count": 1,
        "next": 2,
        "ename": "ZeroDivisionError",
        "evalue": "division by zero",
        "refused": False,
        "commands": 0,
    }
    error = r.error
    assert r.more == error | {"payload": [], "user_expressions": {}}
    assert error["ename"] == "ZeroDivisionError"
    text = "\n".join(error["traceback"])
    assert "Cell In[1], line 3" in text
    assert "return 1 / 0" in text
    assert "\x1b" not in text
    assert "interactiveshell" not in text


def test_color(spawn: Callable[..., Kernel]) -> None:
    kernel = spawn(color=True)
    assert "\x1b[" in "".join(kernel.run("1/0").error["traceback"])
    assert kernel.run("import os; 'NO_COLOR' in os.environ").result == "False"


def test_no_color(kernel: Kernel) -> None:
    assert kernel.run("import os; os.environ['NO_COLOR']").result == "'1'"


def test_syntax_error(kernel: Kernel) -> None:
    r = kernel.run("a = = 1")
    assert r.reply["ename"] == r.error["ename"] == "SyntaxError"
    assert r.reply["execution_count"] == 1


def test_indentation_error_and_bad_magic(kernel: Kernel) -> None:
    assert kernel.run("if 1:\npass").reply["ename"] == "IndentationError"
    r = kernel.run("%nosuchmagic")
    assert r.reply["status"] == "error" and len(r.of("ERROR")) == 1


def test_exception_group(kernel: Kernel) -> None:
    r = kernel.run("raise ExceptionGroup('many', [ValueError('one'), KeyError('two')])")
    assert r.reply["ename"] == "ExceptionGroup"
    text = "\n".join(r.error["traceback"])
    assert "ValueError: one" in text and "Cell In[1]" in text and "interactiveshell" not in text


def test_chained_exceptions(kernel: Kernel) -> None:
    r = kernel.run("try:\n    1/0\nexcept Exception as e:\n    raise ValueError('outer') from e")
    text = "\n".join(r.error["traceback"])
    assert "ZeroDivisionError" in text and "direct cause" in text and "outer" in text


def test_deep_recursion(kernel: Kernel) -> None:
    r = kernel.run("def f(n): return f(n + 1)\nf(0)", timeout=30)
    assert r.reply["ename"] == "RecursionError"
    assert len(r.of("ERROR")[0].raw) < 1 << 20


def test_huge_exception_text(kernel: Kernel) -> None:
    r = kernel.run("raise ValueError('\\u20ac' * 5_000_000)")
    assert r.reply["ename"] == "ValueError"
    assert "characters left out" in r.reply["evalue"]


@pytest.mark.parametrize("ending", ["import sys; sys.exit(3)", "raise SystemExit(3)", "exit(3)", "quit(3)"])
def test_exit_is_an_error_and_the_kernel_lives(kernel: Kernel, ending: str) -> None:
    r = kernel.run(f"x = 1\n{ending}\nx = 2")
    assert (r.reply["ename"], r.reply["evalue"]) == ("SystemExit", "3")
    first, second = r.error["traceback"]
    assert first == "An exception has occurred, use %tb to see the full traceback.\n"
    assert second.startswith("SystemExit: 3 (the host application ends the session")
    assert r.err == ""
    assert kernel.run("x").result == "1"


def test_tb_shows_the_traceback_of_an_exit(kernel: Kernel) -> None:
    kernel.run("def f(): raise SystemExit(3)\nf()")
    assert any("raise SystemExit(3)" in line for line in kernel.run("%tb").error["traceback"])


@pytest.mark.parametrize("method", ["__repr__", "_repr_html_", "_repr_mimebundle_"])
def test_a_result_that_cannot_be_shown_is_an_error(kernel: Kernel, method: str) -> None:
    r = kernel.run(f"class Bad:\n    def {method}(self, *a, **k): 1 / 0\nBad()")
    assert (r.status, r.reply["ename"], r.error["ename"]) == ("error", "ZeroDivisionError", "ZeroDivisionError")
    assert kernel.run("_ = 1").status == "ok"
    r = kernel.run("from IPython.display import display\ndisplay(Bad())")
    assert (r.status, r.error["ename"]) == ("ok", "ZeroDivisionError")
    r = kernel.run("try: 1 / 0\nexcept Exception: get_ipython().showtraceback()\n1")
    assert (r.status, r.result) == ("ok", "1")


def test_bare_exit(kernel: Kernel) -> None:
    assert kernel.run("exit").reply["ename"] == "SystemExit"
    assert kernel.run("1").result == "1"


@pytest.mark.parametrize(
    "code",
    [
        "raise ValueError('\\ud800 \\x00')",
        "raise type('E\\ud800', (Exception,), {})('x')",
        "class E(Exception):\n    def __str__(self): raise SystemExit\nraise E",
        "class E(Exception):\n    def __str__(self): return 1\nraise E",
        "class E(BaseException): pass\nraise E('base')",
        "class M(type):\n    @property\n    def __name__(cls): raise ValueError\n"
        "class E(Exception, metaclass=M): pass\nraise E",
        "class E(Exception):\n    _render_traceback_ = 5\nraise E",
        "class E(Exception):\n    def _render_traceback_(self): return ['ok', 5, b'x']\nraise E",
        "raise GeneratorExit",
        "raise KeyboardInterrupt",
        "raise MemoryError",
        "import asyncio\nraise asyncio.CancelledError",
    ],
)
def test_every_exception_has_one_error_and_one_reply(kernel: Kernel, code: str) -> None:
    r = kernel.run(code)
    assert r.status == "error"
    assert len(r.of("ERROR")) == 1
    assert "\x00" not in r.reply["ename"] + r.reply["evalue"]
    (r.reply["ename"] + r.reply["evalue"]).encode("utf-8")
    assert kernel.run("1").result == "1"


def test_broken_repr(kernel: Kernel) -> None:
    r = kernel.run("class A:\n    def __repr__(self): raise ValueError('no repr')\nA()")
    assert "no repr" in r.text() + str([m.raw for m in r.messages])
    r = kernel.run("class B:\n    def __repr__(self): raise KeyboardInterrupt\nB()")
    assert kernel.run("1").result == "1"


def test_code_that_is_not_utf8(kernel: Kernel) -> None:
    r = kernel.collect(kernel.execute(b"'\xff\xfe'"))
    assert r.result == "'\ufffd\ufffd'"


def test_code_with_a_nul(kernel: Kernel) -> None:
    assert kernel.run("x = '\0'").status == "error"
    assert kernel.run("1").result == "1"


def test_lone_surrogates(kernel: Kernel) -> None:
    r = kernel.run("print('a\\ud800b'); import sys; print('\\udfff', file=sys.stderr)\n'x\\ud800'")
    assert r.out == "a\ufffdb\n"
    assert r.err == "\ufffd\n"
    assert r.result == "'x\\ud800'"
    r = kernel.run(
        "from IPython.display import display\ndisplay({'text/plain': 'a\\ud800\\U0001f600\\\\ud800'}, raw=True)"
    )
    assert r.of("DISPLAY_DATA")[0].json["data"]["text/plain"] == "a\ufffd\U0001f600\\ud800"


def test_display_and_update(kernel: Kernel) -> None:
    r = kernel.run(
        "from IPython.display import HTML, display\nh = display(HTML('<b>1</b>'), display_id='me')\nh.update(HTML('2'))"
    )
    shown, updated = r.messages
    assert (shown.type, updated.type) == ("DISPLAY_DATA", "UPDATE_DISPLAY_DATA")
    assert shown.json["data"]["text/html"] == "<b>1</b>"
    assert shown.json["transient"] == updated.json["transient"] == {"display_id": "me"}


def test_clear_output(kernel: Kernel) -> None:
    r = kernel.run("from IPython.display import clear_output\nclear_output(wait=True)")
    assert [(m.type, m.json) for m in r.messages] == [("CLEAR_OUTPUT", {"wait": True})]


def test_images_are_base64(kernel: Kernel) -> None:
    png = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
    r = kernel.run(f"from IPython.display import Image\nImage({png!r}, format='png')")
    assert base64.b64decode(r.of("EXECUTE_RESULT")[0].json["data"]["image/png"]) == png
    r = kernel.run(f"display({{'image/png': {png!r}}}, raw=True)")
    assert base64.b64decode(r.of("DISPLAY_DATA")[0].json["data"]["image/png"]) == png


def test_nan_in_json(kernel: Kernel) -> None:
    r = kernel.run("from IPython.display import JSON, display\ndisplay(JSON({'a': [float('nan'), float('inf'), 1.5]}))")
    data = r.messages[0].json["data"]
    assert data["application/json"] == {"a": [None, None, 1.5]}
    assert "NaN" in data.pop("text/plain")  # for people
    assert b"NaN" not in json.dumps(data).encode()


_ENCODE_ANYTHING = r"""
import _cellgate, enum, json, random

class Three(enum.IntEnum):
    X = 3
class Loud(float):
    def __repr__(self): return 'loud'
class Scalar:
    def item(self): return 7
class Several:
    def item(self): raise ValueError('several')
    def __repr__(self): return 'several'

chance = random.Random(1)
letters = 'ab"\\/\n\t\x1f\x7f\0\u00e9\u20ac\U0001f600\ud800\udfff'
def make(depth=0):
    kind = chance.randrange(9 if depth < 4 else 6)
    if kind == 0: return ''.join(chance.choice(letters) for _ in range(chance.randrange(40)))
    if kind == 1: return chance.randrange(-10**25, 10**25)
    if kind == 2: return chance.uniform(-1e9, 1e9)
    if kind < 6: return (None, True, 'x' * chance.randrange(5000))[kind - 3]
    if kind == 6: return [make(depth + 1) for _ in range(chance.randrange(4))]
    if kind == 7: return tuple(make(depth + 1) for _ in range(chance.randrange(4)))
    return {make(9) if chance.random() < .2 else str(i): make(depth + 1) for i in range(chance.randrange(4))}
def expected(text):  # pairs of surrogates are characters, others and NULs are none
    text = text.encode('utf-16', 'surrogatepass').decode('utf-16', 'replace')
    return text.replace('\0', '\ufffd')
def same(a, b):
    if isinstance(a, str): return expected(a) == b
    if isinstance(a, (list, tuple)): return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        keys = [k if isinstance(k, str) else json.dumps(k) for k in a]
        return all(map(same, keys, b)) and all(map(same, a.values(), b.values())) if len(a) == len(b) else len(b) < len(a)
    return a == b and type(a) is type(b)
for _ in range(3000):
    value = make()
    text = _cellgate.dumps(value)
    assert text.isascii() and same(value, json.loads(text)), (value, text)
print(_cellgate.dumps([Three.X, Loud(2), Scalar(), Several(), memoryview(b'abcdef')[::2], {(1, 2): {None: b'\xff'}}]))
deep = []
deep.append(deep)
try: _cellgate.dumps(deep)
except RecursionError: print('deep')
"""


def test_anything_can_be_encoded(kernel: Kernel) -> None:
    r = kernel.run(_ENCODE_ANYTHING, timeout=30)
    assert r.out == '[3,2.0,7,"several","YWNl",{"(1, 2)":{"null":"/w=="}}]\ndeep\n', r.reply


def test_base64_is_that_of_the_library(kernel: Kernel) -> None:
    r = kernel.run(
        "import _cellgate, binascii, random\n"
        "chance = random.Random(1)\n"
        "for n in [*range(100), 4095, 4096, 100_001]:\n"
        "    data = chance.randbytes(n)\n"
        "    for options in ({}, {'newline': False}, {'newline': True}):\n"
        "        assert _cellgate.b2a_base64(data, **options) == binascii.b2a_base64(data, **options), n\n"
        "'same'"
    )
    assert r.result == "'same'", r.reply


def test_a_display_over_the_limit_is_the_cells_error(kernel: Kernel) -> None:
    r = kernel.run(
        "from IPython.display import display\ndisplay({'text/plain': 'x' * (65 << 20)}, raw=True)", timeout=30
    )
    assert "over its limit" in r.reply["evalue"]
    assert kernel.run("1").result == "1"


def test_a_large_display_arrives(kernel: Kernel) -> None:
    r = kernel.run("display({'text/plain': 'x' * (40 << 20)}, raw=True)", timeout=30)
    assert len(r.of("DISPLAY_DATA")[0].json["data"]["text/plain"]) == 40 << 20


def test_pager_shows_as_display(kernel: Kernel) -> None:
    r = kernel.run("zip?")
    (message,) = r.messages
    assert list(message.json["data"]) == ["text/plain"]
    assert "Init signature" in message.json["data"]["text/plain"]


def test_source_is_found(kernel: Kernel) -> None:
    kernel.run("def somefunction():\n    return 'the body'")
    assert "the body" in kernel.run("somefunction??").messages[0].json["data"]["text/plain"]
    assert "the body" in kernel.run("import inspect; print(inspect.getsource(somefunction))").out


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("%time 1", "1"),
        ("%timeit -n1 -r1 1", "loop"),
        ("%%capture c\nprint('hidden')", ""),
        ("%who", "empty"),
        ("%env HOME", "/tmp/home"),
        ("%lsmagic", "matplotlib"),
        ("%%writefile w.txt\nhello", "w.txt"),
        ("%pwd", "work space"),
        ("%history", "%history"),
        ("%xmode Minimal", "Minimal"),
        ("%prun -l 1 sum([1])", "function calls"),
        ("%%time\nx = 1", "Wall time"),
        ("%config ZMQInteractiveShell.cache_size", "1000"),
    ],
)
def test_magics(kernel: Kernel, code: str, expected: str) -> None:
    r = kernel.run(code)
    assert r.status == "ok", r
    assert expected in r.text() + "".join(str(m.json) for m in r.messages if m.type != "STREAM")


def test_cd_knows_where_the_session_began(kernel: Kernel) -> None:
    assert kernel.run("%cd /tmp\n%cd -").out.endswith("work space\n")


def test_load_shows_the_text(kernel: Kernel, workspace: Path) -> None:
    (workspace / "f.py").write_text("a = 'from the file'\n")
    assert "from the file" in kernel.run("%load f.py").messages[0].json["data"]["text/plain"]


def test_capture_sees_everything(kernel: Kernel) -> None:
    r = kernel.run("%%capture c\nprint('out')\n!echo shell")
    assert r.out == ""
    assert kernel.run("c.stdout").result == r"'out\nshell\n'"


def test_pip_install_says_what_to_do(kernel: Kernel) -> None:
    r = kernel.run("%pip install requests")
    assert "read-only" in r.error["evalue"]
    assert "cellgate env create" in r.error["evalue"]
    assert kernel.run("%pip --version", timeout=30).out.startswith("pip ")


def test_edit_and_gui_are_refused(kernel: Kernel) -> None:
    assert "editor" in kernel.run("%edit x.py").error["evalue"]
    assert "no display" in kernel.run("%gui qt").err
    assert kernel.run("%gui asyncio").status == "ok"


def test_shell_command(kernel: Kernel) -> None:
    r = kernel.run("!echo out; echo err >&2; exit 3")
    assert (r.out, r.err) == ("out\n", "err\n")
    assert kernel.run("_exit_code").result == "3"
    assert kernel.run("name = 'x y'\n!echo {name} $name").out == "x y x y\n"


def test_shell_command_has_no_input(kernel: Kernel) -> None:
    assert kernel.run("!cat; read x; echo done", timeout=5).out == "done\n"


def test_shell_capture(kernel: Kernel) -> None:
    r = kernel.run("x = !printf 'a\\nb'\nx")
    assert r.result == "['a', 'b']"


def test_bash_cell(kernel: Kernel) -> None:
    r = kernel.run("%%bash\necho one\necho two >&2")
    assert (r.out, r.err) == ("one\n", "two\n")


def test_notebook_detection(kernel: Kernel) -> None:
    assert kernel.run("type(get_ipython()).__name__, 'IPKernelApp' in get_ipython().config").result == (
        "('ZMQInteractiveShell', True)"
    )


def test_post_execute_hooks_belong_to_the_cell(kernel: Kernel) -> None:
    kernel.run("get_ipython().events.register('post_execute', lambda: display('figure'))")
    r = kernel.run("print('x')")
    assert [m.type for m in r.messages] == ["STREAM", "DISPLAY_DATA"]


def test_environment(spawn: Callable[..., Kernel]) -> None:
    kernel = spawn(env=["MY_VAR=a=b", "LANG=de_DE.UTF-8"])
    r = kernel.run("import os; print(sorted(os.environ)); print(os.environ['MY_VAR'], os.environ['LANG'])")
    names, values = r.out.splitlines()
    assert values == "a=b de_DE.UTF-8"
    without_network = ["CARGO_NET_RETRY", "PIP_DISABLE_PIP_VERSION_CHECK", "PIP_RETRIES", "UV_HTTP_RETRIES"]
    without_network += ["npm_config_fetch_retries", "npm_config_update_notifier"]
    assert names == str(sorted(["GIT_PAGER", "HOME", "LANG", "MPLBACKEND", "MY_VAR", "NO_COLOR", "PAGER", "PATH", "TERM", *without_network]))
    assert kernel.run("!echo $MY_VAR").out == "a=b\n"


def test_working_directory_and_imports(kernel: Kernel, workspace: Path) -> None:
    (workspace / "mine.py").write_text("value = 'from the workspace'\n")
    (workspace / "random.py").write_text("raise SystemError('shadowed')\n")
    assert kernel.run("import mine, random; mine.value").result == "'from the workspace'"
    assert kernel.run("import os; os.getcwd()").result == repr(str(workspace))


def test_home_can_be_written(kernel: Kernel) -> None:
    r = kernel.run("import os; p = os.path.expanduser('~/f'); open(p, 'w').write('x'); p")
    assert r.result == "'/tmp/home/f'"


def test_siblings_have_different_random_numbers(spawn: Callable[..., Kernel]) -> None:
    numbers = {spawn().run("import random; random.random()").result for _ in range(3)}
    assert len(numbers) == 3


def test_without_a_sandbox(spawn: Callable[..., Kernel], workspace: Path) -> None:
    kernel = spawn(sandbox=False)
    assert "namespaces" not in kernel.answer["layers"] and "user" not in kernel.answer["layers"]
    assert kernel.run("import os; os.getcwd()").result == repr(str(workspace))


def test_garbage_collection_is_on(kernel: Kernel) -> None:
    assert kernel.run("import gc; gc.isenabled()").result == "True"


def test_utf8_everywhere(kernel: Kernel) -> None:
    r = kernel.run(
        "import sys, locale\nprint(sys.flags.utf8_mode, sys.getfilesystemencoding(), open('/dev/null').encoding)"
    )
    assert r.out.lower() == "1 utf-8 utf-8\n"


def test_python_subprocess_is_the_same_interpreter(kernel: Kernel) -> None:
    r = kernel.run(
        "import subprocess, sys\nargs = [sys.executable, '-c', 'import IPython, sys; print(sys.prefix)']\n"
        "print(subprocess.run(args, capture_output=True, text=True).stdout, sys.prefix)"
    )
    first, second = r.out.split()
    assert first == second


def test_recursion_without_an_end(kernel: Kernel) -> None:
    """Usual recursion limits: the reply comes within seconds, with a short traceback."""
    r = kernel.run("import sys\nsys.setrecursionlimit(10**7)\ndef f(n): return f(n + 1) + 1\nf(0)")
    assert r.reply["ename"] == "RecursionError"
    assert "the recursion limit is set to 200,000" in r.err
    assert len("".join(r.error["traceback"])) < 10_000
    assert kernel.run("sys.getrecursionlimit()").result == "200000"
    r = kernel.run("sys.setrecursionlimit(3000)\nsys.getrecursionlimit()")
    assert (r.result, r.err) == ("3000", "")


def test_a_deep_traceback_is_shortened(kernel: Kernel) -> None:
    code = "import sys\nsys.setrecursionlimit(100_000)\ndef f(n):\n    if n == 0: 1/0\n    f(n - 1)\n"
    for call in ("f(50_000)", "try:\n    f(50_000)\nexcept ZeroDivisionError as e:\n    raise ValueError('x') from e"):
        text = "".join(kernel.run(code + call).error["traceback"])
        assert "ZeroDivisionError" in text and "if n == 0" in text
        assert len(text) < 10_000
    assert "[49,99" in "".join(kernel.run(code + "f(50_000)").error["traceback"])  # frames that were left out


def test_the_supervisors_own_cell_leaves_no_trace(spawn: Callable[..., Kernel]) -> None:
    code = """
shell = get_ipython()
history, hook, db = shell.history_manager, shell.displayhook, shell.history_manager.db
found = [sorted((n, repr(v)) for n, v in d.items() if n[:1] == "_") for d in (shell.user_ns, shell.user_ns_hidden)]
found += [In, Out, shell.execution_count, shell.compile, hook._, hook.__, hook.___, history.output_hist_reprs]
found += [history.input_hist_raw, history.input_hist_parsed, history._i, history._ii, history._iii, history._i00]
found += [history.db_input_cache, history.db_output_cache, history.output_hist]
found += [db.execute(f"select * from {table}").fetchall() for table in ("history", "output_history")]
print(found)
"""
    kernels = [spawn(), spawn()]
    kernels[0].run("1", warm=True)
    one, other = (re.sub("0x[0-9a-f]+", "", k.run(code, silent=True, store_history=False).out) for k in kernels)
    assert one == other
    code = "2; _, __, _i, In, Out, get_ipython().execution_count"
    one, other = ([k.run(c).result for c in (code, "_, __, _i, _ii, _1, _i1, In, Out")] for k in kernels)
    assert one == other


def test_the_supervisors_own_cell_leaves_no_name(kernel: Kernel) -> None:
    """The supervisor's cell in a kernel that is started ahead; uncounted cells of hosts keep their name."""
    cell = "import traceback\ntry: 1 / 0\nexcept ZeroDivisionError: traceback.print_exc()"
    kernel.run("1", warm=True)
    assert '"<Cell In[1]>", line 2' in kernel.run(cell, silent=True, store_history=False).err
    assert '"<Cell In[1].2>", line 3' in kernel.run("0\n" + cell).err
