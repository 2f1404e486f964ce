"""Variables that the host sets and reads, as JSON, as pickles or as tables in Arrow's IPC stream format."""

from __future__ import annotations

import keyword
import math
import pickle
import sys
import unicodedata
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from importlib import import_module
from itertools import islice
from typing import Any, NoReturn

from cellgate_kernel import errors, jsontext, variables
from cellgate_kernel.request import BadRequest, field, parse_object

# Most names of a request, most bytes of a reply, and most levels of a value. The host accepts
# 64 MiB and 200 levels with what surrounds the values.
_MAX_NAMES = 1000
_MAX_BYTES = (64 << 20) - (64 << 10)
_MAX_LEVELS = 190
# Most characters of a key in a path, of a path, and of the repr() of an object without JSON form.
_MAX_KEY = 100
_MAX_PATH = 500
_MAX_REPR = 10_000
# Integers that readers with 64 bits keep.
_MIN_INT, _MAX_INT = -(2**63), 2**63 - 1
_SCALARS = frozenset({int, float, str, bool, type(None)})
_BYTES = (bytes, bytearray, memoryview)


class ValueProblem(Exception):
    """A variable that cannot be set or read: its name, its type, and the place in its value."""

    def __init__(self, ename: str, text: str, name: str, kind: str = "", path: str = "") -> None:
        super().__init__(text)
        self.content = {"ename": ename, "evalue": text, "name": name, "type": kind, "path": path}


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[:limit] + "..."


def _check_names(names: list[Any]) -> None:
    if len(names) > _MAX_NAMES:
        raise BadRequest(f"{len(names)} names: at most {_MAX_NAMES} are possible")
    for name in names:
        if not isinstance(name, str):
            raise BadRequest(f"a name is {type(name).__name__}, expected str")
        if not name.isidentifier() or keyword.iskeyword(name) or unicodedata.normalize("NFKC", name) != name:
            raise BadRequest(f"{_cut(repr(name), _MAX_KEY)} is not the name of a variable")
        if not variables.is_shown(name):
            raise BadRequest(f"{_cut(name, _MAX_KEY)} is reserved for Python or IPython")
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


def set_variables(frames: tuple[bytes, ...], namespace: dict[str, Any]) -> dict[str, Any]:
    """Set all of them, or none."""
    content = parse_object(frames[0], "the content", object_pairs_hook=_unique, parse_float=_finite)
    plain = field(content, "variables", dict, {})
    pickled, arrow = field(content, "pickled", list, []), field(content, "arrow", list, [])
    _check_names([*plain, *pickled, *arrow])
    if len(pickled) + len(arrow) != len(frames) - 1:
        text = f'{len(frames) - 1} buffers for {len(pickled) + len(arrow)} names in "pickled" and "arrow"'
        raise BadRequest(text)
    made = dict(plain)
    for i, name in enumerate([*pickled, *arrow], 1):
        form, load = ("a pickle", pickle.loads) if i <= len(pickled) else ("Arrow", _load_arrow)
        try:
            made[name] = load(frames[i])
        except Exception as e:
            text = f"{name} cannot be read from {form}: {errors.name_of(type(e))}: {errors.text_of(e)}"
            raise ValueProblem("UnpicklingError" if i <= len(pickled) else "ArrowError", text, name) from None
    namespace.update(made)
    return {"status": "ok"}


# ---------------------------------------------------------------- reading as JSON


class _Copier:
    """Copies one value to lists, dicts and scalars that have a JSON form: threads may change the value meanwhile."""

    def __init__(self, name: str, lossy: bool, left: int) -> None:
        self.left = left  # least bytes of JSON that the rest may have
        self._name = name
        self._lossy = lossy
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
            text = f"has no room: the values of a request have at most {_MAX_BYTES} bytes"
            self._problem("ValueTooLarge", text, "")

    def _all_exact(self, items: list[Any], kinds: set[type]) -> bool:
        """True if all of these scalars have an exact form. Spends what texts need."""
        if float in kinds and not all(math.isfinite(v) for v in items if type(v) is float):
            return False
        if int in kinds:
            numbers = items if len(kinds) == 1 else [v for v in items if type(v) is int]
            if min(numbers) < _MIN_INT or max(numbers) > _MAX_INT:
                return False
        if str in kinds:
            texts = items if len(kinds) == 1 else [v for v in items if type(v) is str]
            self._spend(sum(map(len, texts)))
            return all(v.isascii() and "\0" not in v or _is_exact(v) for v in texts)
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
            return self._dict(value, list(value.items()), level)
        tools = sys.modules.get("cellgate_tools")
        objects: Any = getattr(tools, "DictModel", ())  # of tools' results, as the texts
        if isinstance(value, objects):
            return self._dict(value, list(dict.items(value)), level)
        if isinstance(value, getattr(tools, "Text", ())):
            return self.copy(str.__str__(value))
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


def _is_exact(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


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


def get_variables(content: dict[str, Any], namespace: dict[str, Any]) -> tuple[dict[str, Any], tuple[bytes, ...]]:
    """The reply's content, and a buffer for each name in "untrusted_pickle" and in "untrusted_arrow"."""
    names = field(content, "names", list, [])
    pickled, arrow = field(content, "untrusted_pickle", list, []), field(content, "untrusted_arrow", list, [])
    lossy = bool(field(content, "lossy", bool, False))
    _check_names([*names, *pickled, *arrow])
    if len(pickled) + len(arrow) > 63:
        text = f'{len(pickled) + len(arrow)} names in "untrusted_pickle" and "untrusted_arrow": at most 63 are possible'
        raise BadRequest(text)
    found, buffers, left = {}, [], _MAX_BYTES
    for name in [*names, *pickled, *arrow]:
        if name not in namespace:
            raise ValueProblem("NameError", f"name {name!r} is not defined", name)
    for name in names:
        copier = _Copier(name, lossy, left)
        found[name] = copier.copy(namespace[name])
        left = copier.left
    for i, name in enumerate([*pickled, *arrow]):
        file = _File(name, left)
        if i < len(pickled):
            buffers.append(file.data(namespace[name], pickle.dump, "PicklingError", "a pickle"))
        else:
            buffers.append(file.data(namespace[name], _dump_arrow, "ArrowError", "Arrow"))
        left = file.left
    text = jsontext.dumps(found)
    size = len(text) + sum(map(len, buffers))
    if size > _MAX_BYTES:
        raise ValueProblem("ValueTooLarge", f"the values have {size} bytes: at most {_MAX_BYTES} are possible", "")
    reply = {"status": "ok", "variables": found, "untrusted_pickle": pickled, "untrusted_arrow": arrow}
    return reply, tuple(buffers)
