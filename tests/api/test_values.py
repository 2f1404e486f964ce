"""Variables of the kernel that the host sets and reads, as JSON, as pickles and as tables."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cellgate_api import CellgateError, Client, Event, Session

EXACT: dict[str, Any] = {
    "nothing": None,
    "yes": True,
    "zero": 0,
    "negative_zero": -0.0,
    "small": 5e-324,
    "third": 1 / 3,
    "large": 1.7976931348623157e308,
    "whole_float": 1.0,
    "least": -(2**63),
    "most": 2**63 - 1,
    "text": '\u00e4\U0001f600\t"\\\x7f',
    "empty": [[], {}, ""],
    "mixed": [1, 1.5, "a", None, False, {"": {"a b": [[1]]}}],
    "\u03b1": {"\u03b2": 1},
}


@pytest.fixture(scope="module")
def science(prefix: Path, packages_env: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A session whose kernel has numpy, pandas and pyarrow."""
    with (
        Client(log_level=0, kernel_env=str(packages_env)) as c,
        c.session(workspace=tmp_path_factory.mktemp("science")) as s,
    ):
        yield s


@pytest.fixture(scope="module")
def session(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """One for the tests of this file: each sets the variables that it reads."""
    with client.session(workspace=tmp_path_factory.mktemp("values")) as s:
        yield s


def read(session: Session, name: str, **more: Any) -> Event:
    return session.ask("get_variables", {"names": [name], **more})


def test_exact_values_both_ways(session: Session) -> None:
    assert session.ask("set_variables", {"variables": EXACT}).json == {"status": "ok"}
    for name, value in EXACT.items():
        assert session.run(name).value == (None if value is None else repr(value)), name
    reply = session.ask("get_variables", {"names": list(EXACT)})
    assert reply.status == "ok"
    found = reply.json["variables"]
    assert json.dumps(found) == json.dumps(EXACT)


@pytest.mark.parametrize(
    "code, type, path",
    [
        ("v = float('nan')", "float", ""),
        ("v = [0.5, float('-inf')]", "float", "[1]"),
        ("v = 2**63", "int", ""),
        ("v = [[1], [-2**63 - 1]]", "int", "[1][0]"),
        ("v = 10**5000", "int", ""),
        ("v = {'a': [0, (1, 2)]}", "tuple", "['a'][1]"),
        ("v = {1}", "set", ""),
        ("v = [b'a']", "bytes", "[0]"),
        ("v = {'k': {1: 2}}", "dict", "['k']"),
        ("v = {'k': {None: 2}}", "dict", "['k']"),
        ("v = ['\\ud800']", "str", "[0]"),
        ("v = ['\\ud83d', '\\ude00']", "str", "[0]"),
        ("v = 'a\\0b'", "str", ""),
        ("v = {'\\0': 1}", "str", ""),
        ("v = [object()]", "object", "[0]"),
        ("import collections; v = collections.OrderedDict(a=1)", "OrderedDict", ""),
        ("import enum; v = [enum.IntEnum('E', 'a').a]", "E", "[0]"),
        ("class S(str): pass\nv = {S('a'): 1}", "dict", ""),
        ("v = []; v.append(v)", "list", "[0]" * 190),
        ("v = {}; v['a'] = [v, v]", "dict", "['a'][0]" * 95),
        ("v = []\nfor i in range(10_000): v = [v]", "list", "[0]" * 190),
    ],
)
def test_values_without_an_exact_form_are_errors(session: Session, code: str, type: str, path: str) -> None:
    assert session.run(code).result.status == "ok"
    reply = read(session, "v")
    assert (reply.json["status"], reply.json["ename"]) == ("error", "NotJSON")
    assert (reply.json["name"], reply.json["type"]) == ("v", type)
    assert reply.json["path"] == (path if len(path) <= 500 else path[:500] + "...")
    assert reply.json["evalue"].startswith(f"v{reply.json['path']} ")
    assert session.run("1").value == "1"


def test_results_of_tools_are_exact(session: Session) -> None:
    session.run("""
from cellgate_tools import DictModel, Text, ToolResult
v = dict.__new__(DictModel)
v.update({"rows": [dict.__new__(DictModel)], "items": 1})
v["rows"][0]["text"] = Text("\u20ac", ToolResult({}))
""")
    reply = read(session, "v")
    assert reply.json.get("variables") == {"v": {"rows": [{"text": "\u20ac"}], "items": 1}}, reply.json
    session.run("v['rows'][0]['text'] = Text('\\ud800', ToolResult({}))")
    assert read(session, "v").json["path"] == "['rows'][0]['text']"


def test_values_whose_types_hide_others(session: Session) -> None:
    """A cell's own cellgate_tools breaks nothing."""
    session.run("import sys, types; m = types.ModuleType('cellgate_tools'); m.Text = 5; v = {1}")
    session.run("kept, sys.modules['cellgate_tools'] = sys.modules.get('cellgate_tools'), m")
    try:
        assert read(session, "v").json["ename"] in ("NotJSON", "TypeError")
    finally:
        session.run("sys.modules['cellgate_tools'] = kept")


def test_numpy_scalars(science: Session) -> None:
    science.run("import numpy; v = numpy.float64(1)")
    assert read(science, "v").json["type"] == "float64"
    science.run("v = [numpy.int8(3), numpy.float32(0.5), numpy.arange(4).reshape(2, 2), numpy.bool_(True)]")
    assert read(science, "v", lossy=True).json["variables"] == {"v": [3, 0.5, [[0, 1], [2, 3]], True]}


def test_lossy(session: Session) -> None:
    session.run("""
import collections, datetime, enum
class Text(str): pass
class Odd:
    def __repr__(self): return "odd"
v = [float("nan"), 2**64, (1, (2,)), {3}, b"abc", {1: 2, None: 3}, "\\ud800\\0", collections.OrderedDict(a=1),
     enum.IntEnum("E", "a").a, Text("t"), datetime.date(2020, 1, 2), Odd(), 10**5000, memoryview(b"xyz")[::2],
     collections.namedtuple("P", "x y")(1, 2)]
""")
    assert read(session, "v", lossy=True).json["variables"]["v"] == [
        *(None, "18446744073709551616", [1, [2]], [3], "YWJj", {"1": 2, "None": 3}, "\ufffd\ufffd", {"a": 1}),
        *(1, "t", "2020-01-02", "odd", f"<int of {(10**5000).bit_length()} bits>", "eHo=", [1, 2]),
    ]
    session.run("v = {1: 2, '1': 3}; w = []; w.append((w,))")
    assert read(session, "v", lossy=True).json["ename"] == "NotJSON"
    assert read(session, "w", lossy=True).json["ename"] == "NotJSON"


def test_subclasses_that_misbehave_cannot_break_the_json(session: Session) -> None:
    session.run("""
class Endless(list):
    def __iter__(self):
        while True: yield 1
    def __len__(self): return -1
class Strange(dict):
    def items(self): return [1, 2]
class Deep:
    def tolist(self): return self
class Bad:
    def __repr__(self): raise KeyError("\\ud800")
class Meta(type):
    @property
    def __name__(cls): raise OSError
class Nameless(metaclass=Meta): pass
class Key:
    def __hash__(self): return 1
    def __str__(self): return 5
values = [Endless(), Strange(), Deep(), Bad(), Nameless(), {Key(): 1}]
""")
    for i in range(6):
        session.run(f"v = values[{i}]")
        for lossy in (False, True):
            reply = session.ask("get_variables", {"names": ["v"], "lossy": lossy}, timeout_ms=3000)
            if i != 4 or not lossy:
                assert reply.json["status"] == "error", (i, lossy)
    assert session.run("1").value == "1"


def test_a_value_of_exponential_size_is_an_error(session: Session) -> None:
    session.run("v = ['x' * 1_000_000] * 1_000_000; w = []\nfor i in range(60): w = [w, w]")
    reply = session.ask("get_variables", {"names": ["v"]}, timeout_ms=20_000)
    assert (reply.json["ename"], reply.json["name"]) == ("ValueTooLarge", "v")
    reply = session.ask("get_variables", {"names": ["w"]}, timeout_ms=500)
    assert reply.json["ename"] in ("KeyboardInterrupt", "TimeoutError", "ValueTooLarge")
    assert session.run("1").value == "1"


def test_large_values(session: Session) -> None:
    text = "x" * 60_000_000
    assert session.ask("set_variables", {"variables": {"v": text}}, timeout_ms=60_000).json == {"status": "ok"}
    assert session.run("len(v)").value == "60000000"
    assert session.ask("get_variables", {"names": ["v"]}, timeout_ms=60_000).json["variables"]["v"] == text
    data = session.ask("get_variables", {"untrusted_pickle": ["v"]}, timeout_ms=60_000).buffers
    assert pickle.loads(data[0]) == text
    session.run("v = '\\u20ac' * 12_000_000")
    assert read(session, "v").json["ename"] == "ValueTooLarge"
    session.run("v = b'x' * (64 << 20)")
    reply = session.ask("get_variables", {"untrusted_pickle": ["v"]}, timeout_ms=60_000)
    assert (reply.json["ename"], reply.buffers) == ("ValueTooLarge", [])


def test_pickles_both_ways(session: Session) -> None:
    values = [{1: (2, {3})}, float("nan"), b"\0" * 1000, 2**100]
    names = ["a", "b", "c", "d"]
    session.ask("set_variables", {"pickled": names, "variables": {"e": 5}}, buffers=[pickle.dumps(v) for v in values])
    assert session.run("(a, b, len(c), d, e)").value == repr((values[0], values[1], 1000, values[3], 5))
    reply = session.ask("get_variables", {"untrusted_pickle": ["d", "a"], "names": ["e"]})
    assert reply.json["variables"] == {"e": 5}
    assert (reply.json["untrusted_pickle"], reply.json["untrusted_arrow"]) == (["d", "a"], [])
    assert [pickle.loads(b) for b in reply.buffers] == [values[3], values[0]]


def test_pickles_that_cannot_be_made_or_loaded(session: Session) -> None:
    session.run("import sys, threading\nd = []\nfor i in range(100_000): d = [d]\nlock = threading.Lock()")
    for name, kind in (("sys", "module"), ("d", "list"), ("lock", "lock")):
        reply = session.ask("get_variables", {"untrusted_pickle": [name]})
        assert (reply.json["ename"], reply.json["name"], reply.json["type"]) == ("PicklingError", name, kind)
        assert reply.buffers == []
    for data in (b"", b"junk", pickle.dumps(1)[:-1]):
        reply = session.ask("set_variables", {"pickled": ["x"], "variables": {"y": 1}}, buffers=[data])
        assert (reply.json["ename"], reply.json["name"]) == ("UnpicklingError", "x")
    assert read(session, "y").json["ename"] == "NameError", "all are set, or none"


TABLE = """
import pandas, pyarrow
d = pandas.DataFrame({'n': [1, 2, None], 't': ['a', '\u00e9', None]})
t = pyarrow.table({'n': [1, 2], 't': ['a', 'b']})
p = d.copy()
"""


def test_tables_both_ways(science: Session) -> None:
    assert science.run(TABLE).result.status == "ok"
    reply = science.ask("get_variables", {"untrusted_pickle": ["p"], "untrusted_arrow": ["d", "t"]})
    assert reply.json["status"] == "ok", reply.json
    assert reply.json["untrusted_arrow"] == ["d", "t"]
    tables = reply.buffers
    reply = science.ask("set_variables", {"pickled": ["e"], "arrow": ["f", "u"]}, buffers=tables)
    assert reply.json == {"status": "ok"}
    assert science.run("e.equals(d), f.to_pandas().equals(d), type(u) is pyarrow.Table, u.equals(t)").value == (
        "(True, True, True, True)"
    )


def test_tables_that_cannot_be_made_or_read(science: Session) -> None:
    science.run(TABLE + "class C: pass\nx, big, c = 5, pyarrow.table({'a': range(9_000_000)}), C()\nkept = 1")
    for name, kind, text in (("x", "int", "TypeError"), ("c", "C", "TypeError")):
        reply = science.ask("get_variables", {"untrusted_arrow": [name]})
        assert (reply.json["ename"], reply.json["name"], reply.json["type"]) == ("ArrowError", name, kind)
        assert text in reply.json["evalue"] and reply.buffers == []
    reply = science.ask("get_variables", {"untrusted_arrow": ["big"]}, timeout_ms=60_000)
    assert (reply.json["ename"], reply.buffers) == ("ValueTooLarge", [])
    whole = science.ask("get_variables", {"untrusted_arrow": ["t"]}).buffers[0]
    for data in (b"", b"junk", whole[:-20], pickle.dumps(1)):
        reply = science.ask("set_variables", {"arrow": ["kept"], "variables": {"y": 1}}, buffers=[data])
        assert (reply.json["ename"], reply.json["name"]) == ("ArrowError", "kept")
    assert science.run("kept, 'y' in globals()").value == "(1, False)", "all are set, or none"


def test_tables_without_pyarrow(session: Session) -> None:
    session.run("v = {'a': [1]}")
    reply = session.ask("get_variables", {"untrusted_arrow": ["v"]})
    assert reply.json["ename"] == "ArrowError" and "No module named 'pyarrow'" in reply.json["evalue"]
    reply = session.ask("set_variables", {"arrow": ["v"]}, buffers=[b"x"])
    assert reply.json["ename"] == "ArrowError" and "No module named 'pyarrow'" in reply.json["evalue"]


@pytest.mark.parametrize(
    "name", ["", "a b", "a.b", "1a", "if", "None", "__name__", "_", "_1", "In", "Out", "exit", "get_ipython", "\ufb01"]
)
def test_names(session: Session, name: str) -> None:
    for type, content in (("set_variables", {"variables": {name: 1}}), ("get_variables", {"names": [name]})):
        reply = session.ask(type, content)
        assert (reply.json["status"], reply.json["ename"]) == ("error", "BadRequest")
    reply = session.ask("set_variables", {"pickled": [name]}, buffers=[pickle.dumps(1)])
    assert reply.json["ename"] == "BadRequest"


@pytest.mark.parametrize(
    "type, content",
    [
        ("set_variables", '{"variables": []}'),
        ("set_variables", '{"pickled": ["a"]}'),
        ("set_variables", '{"pickled": "a"}'),
        ("set_variables", '{"arrow": ["a"]}'),
        ("set_variables", '{"pickled": ["a"], "arrow": ["a"]}'),
        ("set_variables", '{"variables": {"a": 1e400}}'),
        ("set_variables", '{"variables": {"a": -1e400}}'),
        ("set_variables", '{"variables": {"a": {"b": 1, "b": 2}}}'),
        ("set_variables", '{"variables": {"a": 1}, "variables": {}}'),
        ("get_variables", '{"names": "a"}'),
        ("get_variables", '{"names": [1]}'),
        ("get_variables", '{"names": [[]]}'),
        ("get_variables", '{"names": ["a", "a"]}'),
        ("get_variables", '{"names": ["a"], "lossy": 1}'),
        ("get_variables", json.dumps({"names": [f"a{i}" for i in range(1001)]})),
        ("get_variables", json.dumps({"untrusted_pickle": [f"a{i}" for i in range(64)]})),
        ("get_variables", json.dumps({"untrusted_pickle": ["b"], "untrusted_arrow": [f"a{i}" for i in range(63)]})),
    ],
)
def test_requests_that_are_wrong(session: Session, type: str, content: str) -> None:
    session.run("a = 'before'")
    try:
        reply = session.ask(type, content)
    except CellgateError:
        pass  # refused by the library
    else:
        assert (reply.json["status"], reply.json["ename"]) == ("error", "BadRequest")
    assert session.run("a").value == "'before'"


def test_what_is_not_there(session: Session) -> None:
    session.run("a = 1")
    reply = session.ask("get_variables", {"names": ["a", "absent"]})
    assert (reply.json["ename"], reply.json["name"]) == ("NameError", "absent")
    nothing = {"status": "ok", "variables": {}, "untrusted_pickle": [], "untrusted_arrow": []}
    assert session.ask("get_variables", {}).json == nothing
    assert session.ask("set_variables", {}).json == {"status": "ok"}


def test_requests_run_in_order_with_cells(session: Session) -> None:
    session.execute("import time; time.sleep(0.3); a = 1")
    session.request("set_variables", {"variables": {"b": 2}})
    session.execute("c = a + b")
    assert read(session, "c").json["variables"] == {"c": 3}


def test_values_that_a_thread_changes_meanwhile(session: Session) -> None:
    session.run("""
import threading
v = {"a": list(range(1000)), "b": {}}
go = True
def change():
    i = 0
    while go:
        i += 1
        v["a"][i % 1000] = float("nan") if i % 3 else (1,)
        v["b"][str(i % 5000)] = [i] * (i % 7)
        v["b"].pop(str(i * 7 % 5000), None)
        v["a"][i % 1000] = 1
threading.Thread(target=change, daemon=True).start()
""")
    for _ in range(20):
        reply = read(session, "v")
        assert reply.json["status"] == "ok" or reply.json["ename"] == "NotJSON", reply.json
        assert "null" not in json.dumps(reply.json.get("variables", {}))
    session.run("go = False")
