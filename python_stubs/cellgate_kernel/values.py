"""Variables that the host sets and reads, as JSON, as pickles or as tables in Arrow's IPC stream format."""

from __future__ import annotations

import json
import keyword
import math
import pickle
import sys
import unicodedata
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, cast

import _cellgate
from cellgate_kernel import errors, jsontext, variables
from cellgate_kernel.request import BadRequest, field, parse_object

if TYPE_CHECKING:
    from cellgate_kernel.languages import Language

# Most names of a request, most bytes of a reply, and most levels of a value. The host accepts
# 64 MiB and 200 levels with what surrounds the values.
_MAX_NAMES = 1000
_MAX_BYTES = (64 << 20) - (64 << 10)
# The same of a reply whose values are for another session.
_MAX_BRIDGED = 16 << 20
_MAX_LEVELS = 190
# Most characters of a key in a path, of a path, and of the repr() of an object without JSON form.
_MAX_KEY = 100
_MAX_PATH = 500
_MAX_REPR = 10_000
# Integers that readers with 64 bits keep.
_MIN_INT, _MAX_INT = -(2**63), 2**63 - 1
_SCALARS = frozenset({int, float, str, bool, type(None)})
_BYTES = (bytes, bytearray, memoryview)


class Json(NamedTuple):
    """A value of another session, or for one, as its text."""

    text: bytes
    digits: int = 0
    """No integer has more, in it or in the texts that came with it."""


def text_of(value: Any) -> bytes:
    """A value of JSON, or the text of one, as UTF-8."""
    if isinstance(value, Json):
        return value.text
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return json.dumps(value, separators=(",", ":")).encode()


class ValueProblem(Exception):
    """A variable that cannot be set or read: its name, its type, and the place in its value."""

    def __init__(self, ename: str, text: str, name: str, kind: str = "", path: str = "") -> None:
        super().__init__(text)
        self.content = {"ename": ename, "evalue": text, "name": name, "type": kind, "path": path}


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[:limit] + "..."


def _why_not(name: str) -> str:
    """Why this is no name of a variable of Python; "": it is one."""
    if keyword.iskeyword(name):
        return "is a keyword of Python"
    if not name.isidentifier() or unicodedata.normalize("NFKC", name) != name:
        return "is not the name of a variable"
    return "" if variables.is_shown(name) else "is reserved for Python or IPython"


def _check_names(names: list[Any], language: Language | None) -> None:
    if len(names) > _MAX_NAMES:
        raise BadRequest(f"{len(names)} names: at most {_MAX_NAMES} are possible")
    for name in names:
        if not isinstance(name, str):
            raise BadRequest(f"a name is {type(name).__name__}, expected str")
        if why := _why_not(name) if language is None else language.why_not(name):
            raise BadRequest(f"{_cut(repr(name), _MAX_KEY)} {why}")
    if len(set(names)) != len(names):
        raise BadRequest("a name is there twice")


# ---------------------------------------------------------------- setting


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("an object has two members of the same name")
    return made


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {_cut(text, _MAX_KEY)} is too large for a float")
    return value


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"JSON has no {text}")


def _texts(data: bytes) -> dict[str, Any] | None:
    """The members of an object as texts. None: it is no JSON, or has what only Python reads."""
    try:
        found, digits = _cellgate.members(data, _MAX_LEVELS)
    except ValueError:
        return None
    return {name: Json(text, digits) for name, text in found.items()}


def _renamed(content: dict[str, Any], data: bytes, language: Language | None) -> dict[str, Any]:
    """The values of another session's kernel, under the names that the host gives."""
    names = field(content, "json", dict)
    found = _texts(data) if language is not None else None
    if found is None:
        found = parse_object(data, "the text of the other session", parse_float=_finite, parse_constant=_no_constant)
    if found.keys() != names.keys():
        raise BadRequest("the other session has not sent the variables that were asked for")
    return {names[name]: value for name, value in found.items()}


def read_variables(frames: tuple[bytes, ...], language: Language | None) -> tuple[dict[str, Any], bool]:
    """The values that a request sets, and whether it may change numbers that the language does not have."""
    content = parse_object(frames[0], "the content", object_pairs_hook=_unique, parse_float=_finite)
    plain, bridged = field(content, "variables", dict, {}), field(content, "json", dict, {})
    pickled, arrow = field(content, "pickled", list, []), field(content, "arrow", list, [])
    if language is not None and (pickled or arrow):
        raise BadRequest(f"pickles and tables of Arrow are for Python: the language of this session is {language.name}")
    _check_names([*plain, *pickled, *arrow, *bridged.values()], language)
    n = len(pickled) + len(arrow) + ("json" in content)
    if n != len(frames) - 1:
        raise BadRequest(f'{len(frames) - 1} buffers for {n} names in "pickled" and "arrow", and "json"')
    made = dict(plain)
    if "json" in content:
        made |= _renamed(content, frames[-1], language)
    for i, name in enumerate([*pickled, *arrow], 1):
        form, load = ("a pickle", pickle.loads) if i <= len(pickled) else ("Arrow", _load_arrow)
        try:
            made[name] = load(frames[i])
        except Exception as e:
            text = f"{name} cannot be read from {form}: {errors.name_of(type(e))}: {errors.text_of(e)}"
            raise ValueProblem("UnpicklingError" if i <= len(pickled) else "ArrowError", text, name) from None
    return made, bool(field(content, "lossy", bool, False))


# ---------------------------------------------------------------- reading as JSON


class _Copier:
    """Copies one value to lists, dicts and scalars that have a JSON form: threads may change the value meanwhile."""

    def __init__(self, name: str, lossy: bool, left: int, bridged: bool) -> None:
        self.left = left  # least bytes of JSON that the rest may have
        self._name = name
        self._lossy = lossy
        self._bridged = bridged  # its reader is a kernel: Python's json, node or the shell
        self._path: list[int | str] = []

    def _problem(self, ename: str, text: str, kind: str) -> NoReturn:
        path = "".join(f"[{_cut(repr(step), _MAX_KEY)}]" for step in self._path)
        path = _cut(path, _MAX_PATH)
        raise ValueProblem(ename, f"{self._name}{path} {text}", self._name, kind, path)

    def _fail(self, value: Any, text: str) -> NoReturn:
        self._problem("NotJSON", text, errors.name_of(type(value)))

    def _spend(self, n: int) -> None:
        self.left -= n
        if self.left < 0:
            limit = _MAX_BRIDGED if self._bridged else _MAX_BYTES
            self._problem("ValueTooLarge", f"has no room: the values of a request have at most {limit} bytes", "")

    def _all_exact(self, items: list[Any], kinds: set[type]) -> bool:
        """True if all of these scalars have an exact form. Spends what texts need."""
        if float in kinds and not all(math.isfinite(v) for v in items if type(v) is float):
            return False
        if int in kinds and not self._bridged:
            numbers = items if len(kinds) == 1 else [v for v in items if type(v) is int]
            if min(numbers) < _MIN_INT or max(numbers) > _MAX_INT:
                return False
        if str in kinds:
            texts = items if len(kinds) == 1 else [v for v in items if type(v) is str]
            self._spend(sum(map(len, texts)))
            if self._bridged:
                return all(v.isascii() or _is_text(v) for v in texts)
            return all("\0" not in v and (v.isascii() or _is_text(v)) for v in texts)
        return True

    def _scalar(self, value: Any) -> Any:
        if self._all_exact([value], {type(value)}):
            return value
        if isinstance(value, str):
            if not self._lossy:
                self._fail(value, "is a text with a NUL or half of a surrogate pair, which JSON readers do not keep")
            value = value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
            return value.replace("\0", "\ufffd")
        if isinstance(value, float):
            if not self._lossy:
                self._fail(value, f"is {value!r}, which JSON does not have")
            return None
        if not self._lossy:
            self._fail(value, "is an integer of more than 64 bits, which JSON readers do not keep")
        try:
            return str(value)
        except ValueError:  # more digits than Python converts
            return f"<int of {value.bit_length()} bits>"

    def copy(self, value: Any, level: int = 0) -> Any:
        """The copy. ValueProblem if there is none."""
        kind = type(value)
        if kind in _SCALARS:
            self._spend(1)
            return self._scalar(value)
        if level == _MAX_LEVELS:
            self._fail(value, f"is {_MAX_LEVELS} levels deep: the value contains itself, or is too deep for JSON")
        if kind is list:
            return self._list(value[:], level)
        if kind is dict:
            made = value.copy()
            if self._plain_dict(made, level):
                return made
            return self._dict(value, list(value.items()), level)
        tools = sys.modules.get("cellgate_tools")
        objects: Any = getattr(tools, "DictModel", ())  # of tools' results, as the texts
        if isinstance(value, objects):
            return self._dict(value, list(dict.items(value)), level)
        if isinstance(value, getattr(tools, "Text", ())):
            return self.copy(str.__str__(value))
        if self._bridged and (rows := _rows_of(value)) is not None:
            return self._list(rows(), level)
        if not self._lossy:
            self._fail(value, f"is of type {errors.name_of(kind)}, which has no exact form in JSON")
        return self._converted(value, level)

    def _list(self, items: list[Any], level: int) -> list[Any]:
        self._spend(2 * len(items) + 2)
        kinds = set(map(type, items))
        if kinds <= _SCALARS:
            before = self.left
            if self._all_exact(items, kinds):
                return items
            self.left = before
        made = []
        for i, item in enumerate(items):
            self._path.append(i)
            made.append(self.copy(item, level + 1))
            self._path.pop()
        return made

    def _plain_dict(self, made: dict[Any, Any], level: int) -> bool:
        """Copy the members in place, if keys and scalars among them have an exact form. Spends what they need."""
        kinds = set(map(type, made.values()))
        before = self.left
        self._spend(5 * len(made) + 2)
        if set(map(type, made)) <= {str} and self._all_exact(list(made), {str}):
            if kinds <= _SCALARS:
                scalars = list(made.values())
            else:
                scalars = [value for value in made.values() if type(value) in _SCALARS]
                kinds = set(map(type, scalars))
            if self._all_exact(scalars, kinds):
                if len(scalars) < len(made):
                    for key, item in made.items():
                        if type(item) not in _SCALARS:
                            self._path.append(key)
                            made[key] = self.copy(item, level + 1)
                            self._path.pop()
                return True
        self.left = before
        return False

    def _dict(self, value: Any, items: list[tuple[Any, Any]], level: int) -> dict[str, Any]:
        self._spend(5 * len(items) + 2)
        made: dict[str, Any] = {}
        for key, item in items:
            if type(key) is not str:
                if not self._lossy:
                    self._fail(value, f"has a key of type {errors.name_of(type(key))}: JSON has only texts as keys")
                key = str.__str__(key) if isinstance(key, str) else str(key)
            name = self._scalar(key)
            if name in made:
                self._fail(value, "has two keys that are the same text")
            self._path.append(name)
            made[name] = self.copy(item, level + 1)
            self._path.pop()
        return made

    def _converted(self, value: Any, level: int) -> Any:
        """For `lossy`. Methods of the value may raise, or never return: the request has a time limit."""
        if isinstance(value, str):
            return self.copy(str.__str__(value))
        if isinstance(value, int):
            return self.copy(int.__index__(value))
        if isinstance(value, float):
            return self.copy(float.__float__(value))
        if isinstance(value, _BYTES):
            data = bytes(value)
            self._spend(len(data) * 4 // 3)
            return data  # encoded as base64
        if isinstance(value, Mapping):
            return self._dict(value, list(islice(value.items(), self.left)), level)
        if isinstance(value, (list, tuple, AbstractSet)):
            return self._list(list(islice(value, self.left)), level)
        for method in ("tolist", "isoformat"):  # numpy, pandas, torch; dates
            if callable(getattr(type(value), method, None)):
                return self.copy(getattr(value, method)(), level + 1)
        return self.copy(_cut(repr(value), _MAX_REPR))


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _rows_of(table: object) -> Callable[[], list[Any]] | None:
    """What returns the rows of a table of pandas, polars or pyarrow as dicts, without its index; None: it is none."""
    modules, value = sys.modules, cast("Any", table)
    if isinstance(table, getattr(modules.get("pandas"), "DataFrame", ())) and value.columns.is_unique:
        return lambda: list(value.to_dict("records"))
    if isinstance(table, getattr(modules.get("polars"), "DataFrame", ())):
        return lambda: list(value.to_dicts())
    if isinstance(table, getattr(modules.get("pyarrow"), "Table", ())):
        return lambda: list(value.to_pylist())
    return None


# ---------------------------------------------------------------- pickles and Arrow


def _load_arrow(data: bytes) -> Any:
    pyarrow = import_module("pyarrow")
    return pyarrow.ipc.open_stream(data).read_all()


def _dump_arrow(value: Any, file: _File) -> None:
    pyarrow = import_module("pyarrow")
    table = value if isinstance(value, pyarrow.Table) else pyarrow.table(value)
    with pyarrow.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)


class _File:
    """A file in memory with a limit."""

    closed = False  # pyarrow asks

    def __init__(self, name: str, left: int) -> None:
        self.left = left
        self._name = name
        self._parts: list[bytes] = []

    def write(self, data: Any) -> int:
        part = bytes(data)
        self.left -= len(part)
        if self.left < 0:
            text = f"{self._name} has no room: the values of a request have at most {_MAX_BYTES} bytes"
            raise ValueProblem("ValueTooLarge", text, self._name)
        self._parts.append(part)
        return len(part)

    def flush(self) -> None: ...

    def data(self, value: Any, dump: Callable[[Any, Any], None], ename: str, form: str) -> bytes:
        try:
            dump(value, self)
        except ValueProblem:
            raise
        except Exception as e:
            kind = errors.name_of(type(value))
            why = f"{errors.name_of(type(e))}: {errors.text_of(e)}"
            text = f"{self._name} of type {kind} cannot be written as {form}: {why}"
            raise ValueProblem(ename, text, self._name, kind) from None
        return b"".join(self._parts)


class Wanted(NamedTuple):
    """The variables that a request reads."""

    names: list[str]
    pickled: list[str]
    arrow: list[str]
    lossy: bool
    bridged: bool
    """For another session: as one JSON text in a buffer."""
    tables: bool
    """Which has pyarrow: tables in Arrow's format."""


def wanted(content: dict[str, Any], language: Language | None) -> Wanted:
    """The names and options of a request."""
    names, pickled = field(content, "names", list, []), field(content, "untrusted_pickle", list, [])
    arrow = field(content, "untrusted_arrow", list, [])
    lossy, bridged, tables = (bool(field(content, key, bool, False)) for key in ("lossy", "json", "tables"))
    _check_names([*names, *pickled, *arrow], language)
    n = len(pickled) + len(arrow)
    if n > 63:
        raise BadRequest(f'{n} names in "untrusted_pickle" and "untrusted_arrow": at most 63 are possible')
    if n and language is not None:
        raise BadRequest(f"pickles and tables of Arrow are for Python: the language of this session is {language.name}")
    return Wanted(names, pickled, arrow, lossy, bridged, tables)


def _as_they_are(found: Mapping[str, Any], limit: int) -> bytes | None:
    """The text for another session; None: something has no exact form, or it is too long."""
    if not any(isinstance(value, Json) for value in found.values()):
        return _cellgate.exact(found, limit, _MAX_LEVELS + 1)
    texts = {
        name: value.text if isinstance(value, Json) else _cellgate.exact(value, limit, _MAX_LEVELS)
        for name, value in found.items()
    }
    if any(text is None for text in texts.values()):
        return None
    return b"{" + b",".join(b'"%s":%s' % (name.encode(), text) for name, text in texts.items()) + b"}"


def get_variables(want: Wanted, namespace: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[bytes, ...]]:
    """The reply's content, and its buffers: see cg_session_request()."""
    names, pickled, arrow = want.names, want.pickled, want.arrow
    limit = _MAX_BRIDGED if want.bridged else _MAX_BYTES
    found, buffers, left = {}, [], limit
    for name in [*names, *pickled, *arrow]:
        if name not in namespace:
            raise ValueProblem("NameError", f"name {name!r} is not defined", name)
    if want.tables and find_spec("pyarrow") is not None:
        arrow = [*arrow, *[name for name in names if _rows_of(namespace[name]) is not None][: 62 - len(arrow)]]
        names = [name for name in names if name not in arrow]
    data = _as_they_are({name: namespace[name] for name in names}, limit) if want.bridged and not want.lossy else None
    for name in names if data is None else ():
        value = namespace[name]
        copier = _Copier(name, want.lossy, left, want.bridged)
        found[name] = copier.copy(json.loads(value.text) if isinstance(value, Json) else value)
        left = copier.left
    for i, name in enumerate([*pickled, *arrow]):
        file = _File(name, left)
        if i < len(pickled):
            buffers.append(file.data(namespace[name], pickle.dump, "PicklingError", "a pickle"))
        else:
            buffers.append(file.data(namespace[name], _dump_arrow, "ArrowError", "Arrow"))
        left = file.left
    try:
        if data is None:
            data = text_of(found) if want.bridged else jsontext.dumps(found).encode()
    except ValueError as e:  # an int with more digits than Python converts
        raise ValueProblem("ValueTooLarge", f"the values have no text: {e}", "") from None
    size = len(data) + sum(map(len, buffers))
    if size > limit:
        raise ValueProblem("ValueTooLarge", f"the values have {size} bytes: at most {limit} are possible", "")
    reply = {"status": "ok", "untrusted_pickle": pickled, "untrusted_arrow": arrow}
    if want.bridged:
        return reply, (*buffers, data)
    return reply | {"variables": found}, tuple(buffers)
