"""Model: the base of Params and the classes in it, a thin, fixed view of a JSON object. DictModel: that of Result and
the classes in it, a dict with attributes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self, dataclass_transform

from ._errors import ParamsError
from ._schema import Problem, Schema, hint
from ._signature import of_class
from ._values import UNSET, WireError, to_wire

if TYPE_CHECKING:
    from collections.abc import Callable
    from inspect import Signature

    Wrap = Callable[[Any, int], Any]

__all__ = ["DictModel", "Model", "Open", "plain", "wrapper"]

_MAX_NAMES = 30
"""Most fields in an error."""
_DEPTH = 150
"""Most levels of a result that get classes. Python allows about 1000 calls, and each level takes two or three."""


class Binding:
    """The place of a generated class in a schema, and its names."""

    __slots__ = ("_fixed", "_required", "elsewhere", "names", "nested", "open", "pointer", "schema", "wires", "wraps")

    def __init__(self, schema: Schema, entry: dict[str, Any]) -> None:
        self.schema = schema
        self.pointer: str = entry["p"]
        self.nested: dict[str, str] = entry.get("m", {})
        self.open: bool = entry.get("open", False)
        self.wraps: dict[str, Wrap] = {}  # of nested, for results
        renamed = {wire: name for name, wire in entry.get("w", {}).items()}
        at = schema.at(self.pointer)
        at = at if isinstance(at, dict) else {}
        own = at.get("properties")
        own = own if isinstance(own, dict) else {}
        self.elsewhere = frozenset(entry.get("x", ()))  # original names of fields that parts of the schema add
        wires = [*own, *entry.get("x", ())]
        self.names: dict[str, str] = {renamed.get(wire, wire): wire for wire in wires}
        self.wires = set(wires)
        required = at.get("required")
        self._required = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
        self._fixed = {wire: values for wire, x in own.items() if (values := _strings(x)) is not None}

    def may_fit(self, value: dict[str, Any]) -> bool:
        """False if value has not what tells alternatives apart: a required field, or one of a few fixed strings."""
        return all(name in value for name in self._required) and all(
            value[wire] in values for wire, values in self._fixed.items() if type(value.get(wire)) is str
        )


def _strings(schema: Any) -> list[Any] | None:
    """The values of a field that can only be certain strings."""
    if not isinstance(schema, dict):
        return None
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    return values if isinstance(values, list) and all(isinstance(value, str) for value in values) else None


class _ModelType(type):
    """Keeps what all classes have in common out of help(), which shows dir(). Objects have no other attributes."""

    def __new__(mcls, name: str, bases: tuple[type, ...], body: dict[str, Any], **kwargs: Any) -> _ModelType:
        body.setdefault("__slots__", ())
        return super().__new__(mcls, name, bases, body, **kwargs)

    def __dir__(cls) -> list[str]:
        return []


class _Fields(metaclass=_ModelType):
    """What Model and DictModel have in common."""

    _binding: ClassVar[Binding | None] = None
    _defaults: ClassVar[dict[str, Any]] = {}
    """The attributes of absent fields. That of an argument is None, or UNSET where None is null."""
    _kind: ClassVar[str] = ""
    """The end of errors about attributes."""
    __signature__: ClassVar[Signature]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # Defaults are for readers and type checkers. As class attributes they would hide the values.
        cls._defaults = {n: v for n, v in vars(cls).items() if (v is None or v is UNSET) and not n.startswith("_")}
        for name in cls._defaults:
            delattr(cls, name)
        cls.__signature__ = of_class(cls)
        cls.__doc__ = cls.__doc__ if "__doc__" in vars(cls) and cls.__doc__ else ""  # not the base class's

    @classmethod
    def _of_fields(cls, fields: dict[str, Any]) -> dict[str, Any]:
        """The JSON object of fields, by their Python or original names. Raises ParamsError."""
        binding = _binding_of(cls)
        errors: list[tuple[str, str]] = []
        data: dict[str, Any] = {}
        for name, value in fields.items():
            if value is UNSET:
                continue
            wire = binding.names.get(name, name if binding.open or name in binding.wires else None)
            if value is None and wire in binding.elsewhere and not _takes_none(cls, wire):
                continue
            if wire is None:
                known = ", ".join(binding.names) or "none"
                errors.append(("", f"unknown field {name!r}{hint(name, binding.names)}; fields: {known}"))
            elif wire in data:
                errors.append(("", f"{wire!r} is given twice"))
            else:
                data[wire] = value
        return _checked(cls, binding, data, errors)

    @classmethod
    def model_validate(cls, obj: Any) -> Any:
        """From a dict with the original names: takes exactly what the schema takes, and None for what may be absent.

        Raises ParamsError.
        """
        return _make(cls, _checked(cls, _binding_of(cls), obj, []))

    @classmethod
    def model_json_schema(cls) -> Any:
        """The JSON Schema of this class, without descriptions."""
        binding = _binding_of(cls)
        return plain(binding.schema.at(binding.pointer))

    def _no_field(self, name: str) -> AttributeError:
        if name.startswith("_"):
            return AttributeError(name)
        known = _binding_of(type(self)).names
        near = hint(name, known) or f"; fields: {', '.join([*known][:_MAX_NAMES]) or 'none'}"
        return AttributeError(f"{type(self).__name__} has no field {name!r}{near}{self._kind}")


@dataclass_transform(kw_only_default=True)
class Model(_Fields):
    """An object of a tool's arguments.

    Params(path="a", dryRun=True) takes fields by their Python names (or, through **, by their original
    names) and checks them against the schema; nothing is coerced. An absent field reads as None and is not
    sent; one that could be null reads as UNSET, and None is null. Objects cannot be changed. p["x"] and
    "x" in p use the original names.
    """

    __slots__ = ("_data",)

    _data: dict[str, Any]

    if TYPE_CHECKING:

        def __init__(self) -> None:
            """Of a class without fields; others get theirs from the fields."""

    else:

        def __init__(self, /, **fields):
            object.__setattr__(self, "_data", self._of_fields(fields))

        def __getattr__(self, name):
            return self._field(name)

    @classmethod
    def _of_json(cls, data: dict[str, Any], depth: int = 0) -> Model:
        model = object.__new__(cls)
        object.__setattr__(model, "_data", data)
        return model

    def model_dump(self) -> dict[str, Any]:
        """A plain dict with the original names; what is sent."""
        result: dict[str, Any] = plain(self._data)
        return result

    def _field(self, name: str) -> Any:
        if not name.startswith("_"):
            names = _binding_of(type(self)).names
            wire = names.get(name, name)
            if wire in self._data:
                return self[wire]
            if name in names:
                return self._defaults.get(name, UNSET)
        raise self._no_field(name)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} objects are fixed; make a new one")

    def __getitem__(self, wire: str) -> Any:
        value, wrap = self._data[wire], _binding_of(type(self)).wraps.get(wire)
        return value if wrap is None else wrap(value, 0)

    def __contains__(self, wire: object) -> bool:
        return wire in self._data

    __iter__ = None

    def __eq__(self, other: object) -> bool:
        return self._data == other._data if isinstance(other, Model) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return _make, (type(self), self._data)

    def __dir__(self) -> list[str]:
        return [*_binding_of(type(self)).names, "model_dump", "model_json_schema", "model_validate"]

    def __repr__(self) -> str:
        return _shown(self, {wire: self[wire] for wire in self._data})


if TYPE_CHECKING:

    class Open:
        """A class without fields that takes any names; type checkers would give a Model no arguments."""

        def __init__(self, /, **fields: Any) -> None: ...
        @classmethod
        def model_validate(cls, obj: Any) -> Any: ...
        @classmethod
        def model_json_schema(cls) -> Any: ...
        def model_dump(self) -> dict[str, Any]: ...
        def __getattr__(self, name: str) -> Any: ...
        def __getitem__(self, wire: str) -> Any: ...
        def __contains__(self, wire: object) -> bool: ...

    @dataclass_transform(kw_only_default=True)
    class DictModel(dict[str, Any]):
        """An object of a tool's result: a dict with the original names, whose fields are attributes, too."""

        def __init__(self) -> None: ...
        @classmethod
        def model_validate(cls, obj: Any) -> Any: ...
        @classmethod
        def model_json_schema(cls) -> Any: ...
        def model_dump(self) -> dict[str, Any]: ...
        def copy(self) -> Self: ...

else:

    class Open(Model):
        """A Model without fields that takes any names."""

    class DictModel(_Fields, dict):
        """An object of a tool's result: a dict with the original names, whose fields are attributes, too.

        An absent field is no key, and None as an attribute. The attributes of fields that are called like
        methods of dict have an underscore: r.items_ is r["items"].
        """

        _kind = ". It is a dict with the original names as keys"

        def __init__(self, /, **fields):
            _update(self, self._of_json(self._of_fields(fields)))

        @classmethod
        def _of_json(cls, data, depth=0):
            made = _new_dict(cls)
            _update(made, data)
            if depth <= _DEPTH:
                for wire, wrap in (cls._binding or _binding_of(cls)).wraps.items():
                    if wire in data:
                        _set(made, wire, wrap(data[wire], depth + 1))
            return made

        def model_dump(self):
            """A plain dict, also inside."""
            return plain(self)

        def copy(self):
            return _remade(type(self), self)

        def __getattr__(self, name):
            """Only for names that are no field in the schema."""
            if not name.startswith("_"):
                names = _binding_of(type(self)).names
                if name in self or name in names:
                    return _get(self, names.get(name, name))
            raise self._no_field(name)

        def __setattr__(self, name, value):
            try:
                super().__setattr__(name, value)
            except AttributeError:
                raise AttributeError(
                    f"{type(self).__name__} has no field {name!r}; to add a key: r[{name!r}] = ..."
                ) from None

        @property
        def __dict__(self):
            """For vars()."""
            names = _python_names(type(self))
            return {names.get(wire, wire): value for wire, value in _items(self)}

        def __await__(self):
            """For programs that wait for run() in place of arun(): the call was made."""
            return self
            yield

        def __reduce__(self):
            return _remade, (type(self), dict(self))

        def __dir__(self):
            return [
                *_binding_of(type(self)).names,
                *sorted(_METHODS),
                "model_dump",
                "model_json_schema",
                "model_validate",
            ]

        def __repr__(self):
            return _shown(self, self)


_new_dict, _get, _items, _set, _update = dict.__new__, dict.get, dict.items, dict.__setitem__, dict.update


def _attribute(wire: str) -> property:
    """A field of a DictModel."""

    def read(self: dict[str, Any]) -> Any:
        return _get(self, wire)

    def write(self: dict[str, Any], value: Any) -> None:
        self[wire] = value

    def delete(self: dict[str, Any]) -> None:
        del self[wire]

    return property(read, write, delete)


def _called(kind: type) -> type:
    """Values of a kind that are a method of a dict as well."""

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self.method(*args, **kwargs)

    body: dict[str, Any] = {"__call__": call, "__reduce__": lambda self: (kind, (kind(self),))}
    if issubclass(kind, DictModel):
        body = {
            "__call__": call,
            "__slots__": ("method",),
            "__module__": kind.__module__,
            "_binding": _binding_of(kind),
        }
        body["__reduce__"] = lambda self: (_remade, (kind, dict(self)))
    return type(kind)(kind.__name__, (kind,), body)


_CALLED: dict[type, Any] = {kind: _called(kind) for kind in (list, str, int, float, dict)}
_METHODS = frozenset(name for name in dir(dict) if not name.startswith("_"))


def _method(cls: type, wire: str) -> property:
    """A method of dict that a field is called like. A program that takes it for the field gets the field's value."""

    def read(self: Any) -> Any:
        method = getattr(super(cls, self), wire)
        value = _get(self, wire)
        if isinstance(value, DictModel) and type(value) not in _CALLED:
            _CALLED[type(value)] = _called(type(value))
        kind = _CALLED.get(type(value))
        if kind is None:
            return method
        both = _remade(kind, value) if isinstance(value, DictModel) else kind(value)
        both.method = method
        return both

    return property(read)


def _binding_of(cls: Any) -> Binding:
    """Read from _tools.json when first needed."""
    binding: Binding | None = cls.__dict__.get("_binding")
    if binding is None:
        module = sys.modules[cls.__module__].__dict__
        binding = module["_tool"].binding(cls.__name__)
        binding.wraps = {wire: wrapper(module, spec) for wire, spec in binding.nested.items()}
        if issubclass(cls, dict):
            for name, wire in binding.names.items():
                if name not in _RESERVED:
                    setattr(cls, name, _attribute(wire))
            for wire in _METHODS & binding.wires:
                setattr(cls, wire, _method(cls, wire))
        cls._binding = binding
    return binding


_RESERVED = frozenset(name for cls in DictModel.__mro__ for name in vars(cls))


def _python_names(cls: Any) -> dict[str, str]:
    return {wire: name for name, wire in _binding_of(cls).names.items()}


def _shown(model: Any, values: dict[str, Any]) -> str:
    names = _python_names(type(model))
    return f"{type(model).__name__}({', '.join(f'{names.get(k, k)}={v!r}' for k, v in _items(values))})"


def _make(cls: Any, data: dict[str, Any]) -> Any:
    return cls._of_json(data)


def _remade(cls: Any, data: dict[str, Any]) -> Any:
    """A DictModel whose values have their classes."""
    _binding_of(cls)  # makes the attributes
    made = _new_dict(cls)
    _update(made, data)
    return made


def _dump(value: Any) -> Any:
    return value.model_dump() if isinstance(value, Model) else UNSET


def _checked(cls: type[Any], binding: Binding, value: Any, errors: list[tuple[str, str]]) -> dict[str, Any]:
    """The JSON form of value. Raises ParamsError with errors and everything else that is wrong."""
    try:
        data = to_wire(value, _dump)
        errors += [(p.path, p.text) for p in _without_nulls(binding, data)]
        if not errors and not isinstance(data, dict):
            errors.append(("", "an object is needed"))
    except WireError as e:
        errors.append((e.path, str(e)))
    except RecursionError:
        errors.append(("", "nested too deep, or it contains itself"))
    if errors:
        raise ParamsError(cls.__name__, errors)
    result: dict[str, Any] = data
    return result


def _takes_none(cls: type[Any], wire: Any) -> bool:
    """Whether None may be null, or the field may not be absent."""
    return cls._defaults.get(_python_names(cls)[wire], UNSET) is UNSET


def _without_nulls(binding: Binding, data: Any) -> list[Problem]:
    """The problems of data. Nulls that are problems are removed first where the field may be absent."""
    problems = binding.schema.errors(data, binding.pointer)
    if not any([_remove_null(data, p.path) for p in problems]):
        return problems
    left = binding.schema.errors(data, binding.pointer)
    needed = any(p.keyword == "required" and p not in problems for p in left)
    return problems if needed else left


def _remove_null(value: Any, path: str) -> bool:
    """Remove a member of an object that is null, by its JSON pointer, in which nothing is escaped."""
    name, _, rest = path[1:].partition("/")
    if isinstance(value, list):
        item = value[int(name)] if name.isdecimal() and len(name) < 8 and int(name) < len(value) else None
        return bool(rest) and _remove_null(item, f"/{rest}")
    if not isinstance(value, dict):
        return False
    if path[1:] in value:
        name, rest = path[1:], ""
    elif name not in value:
        name = next((key for key in value if path.startswith(f"/{key}/")), "")
        rest = path[len(name) + 2 :]
    if rest:
        return _remove_null(value.get(name), f"/{rest}")
    found = value.get(name, UNSET) is None
    if found:
        del value[name]
    return found


def plain(value: Any) -> Any:
    """A deep copy of a JSON value."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in _items(value)}
    return [plain(item) for item in value] if isinstance(value, list) else value


# ---------------------------------------------------------------------- classes in values


def _alternatives(spec: str) -> list[str]:
    """Splits at each | that is not in parentheses."""
    parts, depth, start = [], 0, 0
    for i, char in enumerate(spec):
        depth += (char == "(") - (char == ")")
        if char == "|" and not depth:
            parts.append(spec[start:i])
            start = i + 1
    return [*parts, spec[start:]]


def _inner(spec: str) -> str:
    """The spec of items, for "[X" or "[(X|Y)"."""
    return spec[2:-1] if spec[1:2] == "(" else spec[1:]


def wrapper(names: dict[str, Any], spec: str) -> Wrap:
    """A function that gives objects in a value the classes that spec says, from the module's names.

    "X" an object, "[X" a list, "{X" a mapping, "X|Y" either. The function gets the value and its level.
    """
    alternatives = _alternatives(spec)
    inner = {a[0]: wrapper(names, _inner(a)) for a in reversed(alternatives) if a[0] in "[{"}
    items, values = inner.get("["), inner.get("{")
    classes = [names[a] for a in alternatives if a[0] not in "[{"]
    only = classes[0] if len(classes) == 1 and values is None else None
    made_by = None if only is None else only._of_json

    def wrap(value: Any, depth: int) -> Any:
        kind = type(value)
        if kind is dict and depth <= _DEPTH:
            if made_by is not None:
                return made_by(value, depth)
            cls = _fitting(classes, value, values is None)
            if cls is not None:
                return cls._of_json(value, depth)
            return {name: values(item, depth + 1) for name, item in value.items()} if values else value
        if kind is list and items and depth <= _DEPTH:
            return [items(item, depth + 1) for item in value]
        return value

    return wrap


def _fitting(classes: list[Any], value: dict[str, Any], sure: bool) -> Any:
    """The class whose schema value fits, or None. sure: it fits one of them."""
    possible = [cls for cls in classes if _binding_of(cls).may_fit(value)]
    if sure and len(possible) == 1:
        return possible[0]
    for cls in possible:
        binding = _binding_of(cls)
        if not binding.schema.errors(value, binding.pointer):
            return cls
    return None
