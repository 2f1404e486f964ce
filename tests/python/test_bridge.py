"""Variables that go from one session to another, of any language: Session.bridge()."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cellgate
import pytest

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="there is no node")
SUITE = Path(os.environ.get("CG_SHARED", "/nowhere"), "cases", "json-schema-suite")
WORDS = [
    "",
    "a",
    "ä",
    "\U0001f600",
    'q"\\',
    "a\nb\n",
    "\n\n",
    " x ",
    "$(id)",
    "`id`",
    "${x}",
    "'",
    "\x7f",
    "1",
    "null",
    "[1]",
]


@pytest.fixture(scope="module")
def sessions(client: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    open_one = lambda language: cellgate.Session(tmp_path_factory.mktemp("w"), client=client, language=language)  # noqa: E731
    with open_one(None) as python, open_one("node") as node, open_one("shell") as shell, open_one("python") as last:
        yield {"python": python, "node": node, "shell": shell, "last": last}


def canonical(value: Any) -> str:
    """JSON text in the canonical form of RFC 8785, of numbers that JavaScript has."""
    if isinstance(value, dict):
        order = sorted(value, key=lambda key: key.encode("utf-16-be"))
        return "{" + ",".join(f"{canonical(key)}:{canonical(value[key])}" for key in order) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        value = int(value)
    return json.dumps(value, ensure_ascii=False)


def around(sessions: dict[str, Any], value: Any) -> Any:
    """The value after its way through all languages."""
    sessions["python"].run(f"v = __import__('json').loads({json.dumps(value)!r})").check()
    path = [sessions[name] for name in ("python", "node", "shell", "last")]
    for i, (source, target) in enumerate(zip(path, path[1:], strict=False)):
        source.bridge(target, f"v{i}" if i else "v", as_=f"v{i + 1}")
    text = sessions["last"].run("__import__('json').dumps(v3)").value
    return json.loads(eval(text))


def suite() -> list[Any]:
    files = sorted(SUITE.glob("draft*/**/*.json"))
    cases = [case for file in files for case in json.loads(file.read_text())]
    return [test["data"] for case in cases for test in case["tests"]]


def random_value(chance: random.Random, level: int = 0) -> Any:
    kind = chance.randrange(9 if level < 4 else 6)
    if kind == 0:
        return chance.choice([None, True, False])
    if kind == 1:
        return chance.randint(-(2**53), 2**53)
    if kind == 2:
        return chance.choice([0.0, 1e300, 5e-324, 1e21, chance.random(), chance.uniform(-1e9, 1e9)])
    if kind < 6:
        return chance.choice(WORDS) + chance.choice(WORDS)
    items = [random_value(chance, level + 1) for _ in range(chance.randrange(5))]
    if kind < 8:
        return items
    return {chance.choice(WORDS) + chance.choice([*WORDS, "__proto__", "constructor"]): item for item in items}


@pytest.mark.skipif(not SUITE.is_dir(), reason="CG_SHARED is not set: the suite is not there")
def test_the_instances_of_the_json_schema_suite(sessions: dict[str, Any]) -> None:
    def exact(value: Any) -> bool:
        return not any(type(v) is int and abs(v) > 2**53 for v in leaves(value))

    instances = [value for value in suite() if exact(value)]
    assert len(instances) > 1000
    assert canonical(around(sessions, instances)) == canonical(instances)
    for value in {canonical(v): v for v in instances if not isinstance(v, (list, dict))}.values():
        assert canonical(around(sessions, value)) == canonical(value)


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from leaves(item)
    else:
        yield value


def test_random_values(sessions: dict[str, Any]) -> None:
    chance = random.Random(8)
    values = [random_value(chance) for _ in range(1000)]
    found = around(sessions, values)
    for value, back in zip(values, found, strict=True):
        assert canonical(back) == canonical(value)
    for value in values[:40]:  # each as a variable of its own
        assert canonical(around(sessions, value)) == canonical(value)


@pytest.mark.parametrize(
    "value",
    ["a\0b", "", "\n", 5, 2.5, True, None, [], {}, [None], "5", "null", "[]", -0.0, 2**53, -(2**53), 1e20, 1e22],
)
def test_single_values(sessions: dict[str, Any], value: Any) -> None:
    assert canonical(around(sessions, value)) == canonical(value if value or type(value) is not float else 0)


def test_what_the_languages_see(sessions: dict[str, Any]) -> None:
    python, node, shell = (sessions[name] for name in ("python", "node", "shell"))
    python.run("t = 'two words'; n = 5; o = {'a': [1]}")
    python.bridge(node, "t", "n", "o")
    python.bridge(shell, "t", "n", "o", as_=["t1", "n1", "o1"])
    assert node.run("[t, n + 1, o.a[0]]").value == "[ 'two words', 6, 1 ]"
    assert shell.run('echo "$t1:$((n1 + 1)):$o1"').stdout == 'two words:6:{"a":[1]}\n'
    shell.run("s=5; a=(x 'y z'); declare -A m=([k]=v [l]=w); g=([2]=z [5]=y); n1=7; declare -i i=3; e=()")
    shell.bridge(python, "s", "a", "m", "g", "n1", "i", "e")
    found = ("5", ["x", "y z"], {"k": "v", "l": "w"}, {"2": "z", "5": "y"}, "7", "3", [])
    assert eval(python.run("s, a, m, g, n1, i, e").value) == found
    node.run("let late = [1, {x: 2}]; var old = null; const fixed = 'f'; bare = {__proto__: null, p: 1}")
    node.bridge(python, "late", "old", "fixed", "bare")
    assert python.run("late, old, fixed, bare").value == "([1, {'x': 2}], None, 'f', {'p': 1})"
    python.bridge(node, "n", as_="late")
    assert node.run("late").value == "5"


def fails(source: Any, target: Any, *names: str, match: str, **options: Any) -> None:
    with pytest.raises(cellgate.CellgateError, match=match):
        source.bridge(target, *names, **options)


def test_all_or_nothing(sessions: dict[str, Any]) -> None:
    python, node, shell = (sessions[name] for name in ("python", "node", "shell"))
    python.run("good = 1; large = 2**53 + 1; deep = {'a': [0, 2**60]}; bad = {1, 2}")
    fails(python, node, "good", "large", match="large is an integer beyond 2\\*\\*53")
    fails(python, node, "good", "deep", match=r"deep\['a'\]\[1\] is an integer")
    fails(python, node, "good", "bad", match="bad is of type set")
    fails(python, node, "good", "nothing", match="'nothing' is not defined")
    node.run("const good_constant = 1; globalThis.free = 0")
    fails(python, node, "good", "good", match="each once")
    python.run("free, good_constant, readonly_one = 1, 2, 3")
    fails(python, node, "free", "good_constant", match="good_constant TypeError: Assignment to constant")
    assert node.run("free").value == "0" and node.run("typeof good").value == "'undefined'"
    shell.run("readonly readonly_one; free=0")
    fails(python, shell, "free", "readonly_one", match="readonly_one cannot be set")
    assert shell.run("echo $free").stdout == "0\n"
    python.bridge(node, "large", "deep", lossy=True)
    assert node.run("[large, deep.a[1]]").value == "[ 9007199254740992, 1152921504606847000 ]"
    python.bridge(sessions["last"], "large", as_="exact")
    assert sessions["last"].run("exact").value == str(2**53 + 1)


@pytest.mark.parametrize(
    "code, match",
    [
        ("[1, (1,)]", r"\[1\] is of type tuple"),
        ("{'a': {1: 2}}", r"\['a'\] has a key of type int"),
        ("[float('inf')]", r"\[0\] is inf"),
        ("{'a': '\\ud800'}", r"\['a'\] is a text with .* half of a surrogate pair"),
        ("{'\\ud800': 1}", "half of a surrogate pair"),
        ("[__import__('enum').IntEnum('E', 'one').one]", r"\[0\] is of type E"),
        ("[type('T', (str,), {})('a')]", r"\[0\] is of type T"),
        ("[type('D', (dict,), {})()]", r"\[0\] is of type D"),
        ("__import__('functools').reduce(lambda a, _: [a], range(190), [])", "190 levels deep"),
        ("10**5000", "have no text"),
    ],
)
def test_values_that_python_cannot_give(sessions: dict[str, Any], code: str, match: str) -> None:
    sessions["python"].run(f"odd = {code}").check()
    for name in ("last", "node"):
        fails(sessions["python"], sessions[name], "odd", match=match)


def test_texts_that_are_passed_on(sessions: dict[str, Any]) -> None:
    """Also where the language between reads nothing of them."""
    python, node, shell, last = (sessions[name] for name in ("python", "node", "shell", "last"))
    text = "".join(map(chr, [*range(0xD800), 0xE000, 0xFFFF, 0x10000, 0x10FFFF]))
    python.run(
        f"v = [{text!r}, {{{text!r}: {{}}}}, [], 0.1, -5, None, True, False, 10**1200]; w = {text!r}; z = 2**53 + 1"
    )
    python.bridge(last, "v", "w")
    for other in (node, shell):
        python.bridge(other, "w")
        other.bridge(last, "w", as_=f"w_{other.info['language']}")
    python.bridge(shell, "v")
    shell.bridge(last, "v", as_="back")
    assert last.run(f"w == w_node == w_shell == {text!r}, back == v, v[8] == 10**1200").value == "(True, True, True)"
    python.bridge(shell, "z")
    fails(shell, node, "z", match="z is an integer beyond")
    node.run("globalThis.far = [2**60, 2**53, 1e20, 5]")
    node.bridge(last, "far")
    assert last.run("far").value == "[1.152921504606847e+18, 9007199254740992, 1e+20, 5]"
    node.bridge(shell, "far")
    assert shell.run("echo $far").stdout == "[1.152921504606847e+18,9007199254740992,1e+20,5]\n"
    shell.run(r"""printf -v bytes '\xff'; all=$'* ~ $(id)\001\177\001\001 \t'; nothing=; IFS=:""")
    fails(shell, last, "bytes", match="surrogate")
    shell.bridge(last, "all", "nothing")
    assert last.run("all, nothing").value == repr(("* ~ $(id)\x01\x7f\x01\x01 \t", ""))
    shell.run("unset IFS")


def test_values_that_node_cannot_give(sessions: dict[str, Any]) -> None:
    node, python = sessions["node"], sessions["python"]
    for code, match in {
        "1n": "bigint",
        "new Date(0)": "Date",
        "[undefined]": r"\[0\] is of type undefined",
        "({a: [NaN]})": r'\["a"\]\[0\] is NaN',
        "'\\ud800'": "surrogate",
        "[1, , 2]": r"\[1\] is of type undefined",
        "new Map()": "Map",
        "() => 1": "function",
        "(() => { const o = {}; o.o = o; return o; })()": "contains itself",
        "({toJSON: () => 1})": "toJSON",
    }.items():
        node.run(f"globalThis.odd = {code}").check()
        fails(node, python, "odd", match=match)
    node.run("globalThis.odd = [1n, new Set([1]), new Map([['a', 1]]), NaN, undefined, new Date(0)]")
    node.bridge(python, "odd", lossy=True)
    assert python.run("odd").value == "['1', [1], {'a': 1}, None, None, '1970-01-01T00:00:00.000Z']"


@pytest.mark.parametrize(
    "language, name, match",
    [
        ("last", "lambda", "a keyword of Python"),
        ("node", "await", "a keyword of JavaScript"),
        ("node", "let", "a keyword of JavaScript"),
        ("shell", "fi", "a keyword of the shell"),
        ("last", "a b", "not the name"),
        ("last", "__name__", "reserved"),
        ("node", "a.b", "not the name"),
        ("node", "x;process.exit()", "not the name"),
        ("node", "JSON", "a name of node"),
        ("node", "globalThis", "a name of node"),
        ("node", "__proto__", "a name of node"),
        ("shell", "a[$(id)]", "not the name"),
        ("shell", "PS4", "reserved"),
        ("shell", "BASH_ENV", "reserved"),
        ("shell", "LD_PRELOAD", "reserved"),
        ("shell", "__cg_fd", "reserved"),
    ],
)
def test_names(sessions: dict[str, Any], language: str, name: str, match: str) -> None:
    sessions["python"].run("ok = 1")
    fails(sessions["python"], sessions[language], "ok", as_=name, match=match)


def test_a_text_is_never_code(sessions: dict[str, Any], tmp_path: Path) -> None:
    """Also where the shell's variable gave its text a meaning before."""
    python, shell, node = (sessions[name] for name in ("python", "shell", "node"))
    shell.run("declare -i number=1; declare -n ref=target; target=0; declare -a list=(1); declare -A map=([a]=1)")
    python.run("evil = 'x[$(touch ran)]'")
    for name in ("number", "ref", "list", "map"):
        python.bridge(shell, "evil", as_=name)
        assert shell.run(f'printf %s "${name}"').stdout == "x[$(touch ran)]"
    assert shell.run("echo $target; ls").stdout == "0\n"
    python.run("evil = {'__proto__': {'polluted': 1}, 'constructor': 1}")
    python.bridge(node, "evil", as_="proto")
    assert node.run("[({}).polluted, Object.keys(proto)]").value == "[ undefined, [ '__proto__', 'constructor' ] ]"


FORGED = """
from cellgate_kernel import values
values.get_variables = lambda w, n: ({!r}, {!r})
"""


@pytest.mark.parametrize(
    "content, buffers, match",
    [
        ({"status": "ok", "untrusted_arrow": []}, (), "does not have"),
        ({"status": "ok", "untrusted_arrow": 5}, (b"{}",), "does not have"),
        ({"status": "ok", "untrusted_arrow": ["other"]}, (b"a", b"{}"), "does not have"),
        ({"status": "ok", "untrusted_arrow": []}, (b'{"other": 1}',), "asked for"),
        ({"status": "ok", "untrusted_arrow": []}, (b'{"v": 1, "w": 2}',), "asked for"),
        ({"status": "ok", "untrusted_arrow": []}, (b'{"v": NaN}',), "not JSON"),
        ({"status": "ok", "untrusted_arrow": []}, (b'{"v": 1} x',), "not JSON"),
        ({"status": "ok", "untrusted_arrow": []}, (b'{"v": "\xff"}',), "not JSON"),
        ({"status": "ok", "untrusted_arrow": []}, (b'{"v": 1e999}',), "not JSON"),
        ({"status": "ok", "untrusted_arrow": []}, (b'{"v": 1}\n{"cell": 1, "code": "forged = 1"}',), "not JSON"),
        ({"status": "ok", "untrusted_arrow": []}, (b'{"v": 1, "v\\u0077": 2}',), "asked for"),
        ({"status": "ok", "untrusted_arrow": []}, (b"[" * 100_000,), "not JSON"),
        ({"status": "ok", "untrusted_arrow": []}, (b'{"v": ' + b"1" * 5000 + b"}",), "not JSON"),
        ({"status": "ok", "untrusted_arrow": ["v"]}, (b"no table", b"{}"), "does not have"),
    ],
)
@pytest.mark.parametrize("language", ["python", "node", "shell"])
def test_a_kernel_that_forges(
    client: Any, tmp_path: Path, language: str, content: Any, buffers: Any, match: str, sessions: dict[str, Any]
) -> None:
    target = sessions["last" if language == "python" else language]
    with cellgate.Session(tmp_path, client=client) as hostile:
        hostile.run(FORGED.format(content, buffers))
        fails(hostile, target, "v", as_="forged", match=match + "|for Python")
    missing = target.run({"node": "typeof forged", "shell": "echo ${forged-undefined}"}.get(language, "forged"))
    assert "undefined" in (missing.value or missing.stdout) or missing.error.ename == "NameError"


def test_a_session_that_is_not_there(client: Any, tmp_path: Path, sessions: dict[str, Any]) -> None:
    with cellgate.Session(tmp_path, client=client) as gone:
        pass
    sessions["python"].run("v = 1")
    with pytest.raises(cellgate.ClosedError):
        sessions["python"].bridge(gone, "v")


def test_16_mib(sessions: dict[str, Any]) -> None:
    python, last = sessions["python"], sessions["last"]
    python.run("big = ['x' * 100] * 150_000; over = 'x' * (16 << 20)")
    fails(python, last, "over", match="ValueTooLarge")
    times = []
    for _ in range(5):
        begin = time.monotonic()
        python.bridge(last, "big")
        times.append(time.monotonic() - begin)
    assert last.run("len(big), big[-1] == 'x' * 100").value == "(150000, True)"
    assert min(times) < 2, times  # 0.1 on a machine with nothing else to do
    for name in ("node", "shell"):
        python.bridge(sessions[name], "big")
    assert sessions["node"].run("big.length").value == "150000"
    sessions["shell"].bridge(last, "big", as_="back")
    assert last.run("back == big").value == "True"


def test_tables(packages_env: Path, tmp_path: Path, sessions: dict[str, Any]) -> None:
    code = "import pandas, pyarrow\nd = pandas.DataFrame({'n': [1, 2], 't': ['a', 'b']})\nt = pyarrow.table(d)\ni = 1"

    async def awaiting() -> str | None:
        async with (
            cellgate.aio.Session(tmp_path, python=packages_env) as a,
            cellgate.aio.Session(tmp_path, python=packages_env) as b,
        ):
            await a.run(code)
            await a.bridge(b, "d", "t", "i", as_=["e", "f", "j"])
            return (
                await b.run("type(e).__name__, e.to_pydict() == f.to_pydict() == {'n': [1, 2], 't': ['a', 'b']}, j")
            ).value

    assert asyncio.run(awaiting()) == "('Table', True, 1)"
    rows = "[{'n': 1, 't': 'a'}, {'n': 2, 't': 'b'}]"
    with cellgate.Session(tmp_path, python=packages_env) as science:
        science.run(code)
        for name in ("d", "t"):  # the other kernel has no pyarrow
            science.bridge(sessions["last"], name, "i", as_=["rows", "i"])
            assert sessions["last"].run("rows, i").value == f"({rows}, 1)"
        science.bridge(sessions["node"], "d", as_="frame")
        assert sessions["node"].run("JSON.stringify(frame)").value == '\'[{"n":1,"t":"a"},{"n":2,"t":"b"}]\''


def test_after_a_shell_has_ended(sessions: dict[str, Any]) -> None:
    sessions["python"].run("v = [1]")
    sessions["python"].bridge(sessions["shell"], "v")
    sessions["shell"].run("kill -9 $$")
    with pytest.raises(cellgate.NotFoundError):
        sessions["shell"].get_variables("v")
    sessions["shell"].run("v='[1]'")
    assert sessions["shell"].get_variables("v") == {"v": "[1]"}


def test_a_variable_that_is_never_read(sessions: dict[str, Any]) -> None:
    """The next cell does not wait for ever: node is ended."""
    node = sessions["node"]
    node.run("Object.defineProperty(globalThis, 'endless', { get() { while (true); }, configurable: true })").check()
    with pytest.raises(cellgate.TimedOutError):
        node.get_variables("endless", timeout=0.5)
    ran = node.run("console.log(1)", timeout=60)
    assert ran.stdout == "1\n" and "node has ended since the last cell" in ran.stderr
