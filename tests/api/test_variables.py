"""The variables that a cell has made, changed and deleted."""

from __future__ import annotations

from typing import Any

from cellgate_api import Session

WANTED = {"variables": True}


def changes(session: Session, code: str, **more: Any) -> dict[str, Any]:
    return session.run(code, extra=WANTED, **more).result.json["variables"]


def names(found: dict[str, Any]) -> dict[str, list[str]]:
    return {
        key: sorted(v if isinstance(v, str) else v["name"] for v in found[key])
        for key in ("made", "changed", "deleted")
    }


def test_made_changed_deleted(session: Session) -> None:
    assert changes(session, "a = [1, 2]\nb = 'text'\nc = 7\nd = {}\nclass E: pass\ndef f(): pass\nimport os") == {
        "made": [
            {"name": "a", "type": "list", "length": 2},
            {"name": "b", "type": "str", "length": 4},
            {"name": "c", "type": "int"},
            {"name": "d", "type": "dict", "length": 0},
            {"name": "E", "type": "type"},
            {"name": "f", "type": "function"},
            {"name": "os", "type": "module"},
        ],
        "changed": [],
        "deleted": [],
        "left_out": 0,
    }
    found = changes(session, "a.append(3)\nb = 'other'\nc = 7\ndel d\ne = E()\ne")
    assert names(found) == {"made": ["e"], "changed": ["a", "b"], "deleted": ["d"]}
    assert found["changed"][0] == {"name": "a", "type": "list", "length": 3}
    assert names(changes(session, "1")) == {"made": [], "changed": [], "deleted": []}


def test_not_asked_for(session: Session) -> None:
    assert "variables" not in session.run("x = 1").result.json
    assert "variables" not in session.run("x = 2", extra={"variables": False}).result.json


def test_object_in_the_place_of_one_that_is_gone(session: Session) -> None:
    session.run("class T: pass\nx = T()")
    for _ in range(5):
        assert names(changes(session, "del x\nx = T()"))["changed"] == ["x"]


def test_a_cell_that_fails(session: Session) -> None:
    out = session.run("made = 1\n1/0", extra=WANTED)
    assert out.result.json["ename"] == "ZeroDivisionError"
    assert names(out.result.json["variables"])["made"] == ["made"]
    assert names(changes(session, "x = )"))["made"] == []


def test_an_interrupted_cell(session: Session) -> None:
    out = session.run("before = 1\nimport time\ntime.sleep(60)", extra=WANTED, timeout_ms=300)
    assert out.result.status == "timeout" and "before" in names(out.result.json["variables"])["made"]


def test_beside_expressions(session: Session) -> None:
    out = session.run("x = 6", extra={"user_expressions": {"y": "x * 7"}, "variables": True})
    assert out.result.json["user_expressions"]["y"]["data"]["text/plain"] == "42"
    assert names(out.result.json["variables"])["made"] == ["x"]


def test_many_and_long_names(session: Session) -> None:
    found = changes(session, "for i in range(450): globals()[f'v{i}'] = i\nglobals()['n' * 100_000] = 1")
    assert len(found["made"]) == 200 and found["left_out"] == 252  # with i
    found = changes(session, "for n in [n for n in globals() if n[0] == 'v']: del globals()[n]")
    assert len(found["deleted"]) == 200


def test_what_a_hostile_cell_leaves(session: Session) -> None:
    code = (
        "class M(type):\n    @property\n    def __name__(cls): raise SystemExit\n"
        "class L(list):\n    def __len__(self): raise SystemExit\n    def __eq__(self, other): raise SystemExit\n"
        "class C(metaclass=M):\n    def __getattr__(self, name): raise SystemExit\n"
        "x, y = C(), L()\nglobals()[5] = 1\nglobals()['\\ud800\\0'] = 2"
    )
    found = changes(session, code)
    assert {"x", "y", "C", "L", "M"} <= {v["name"] for v in found["made"]}
    assert session.run("'alive'").value == "'alive'"
