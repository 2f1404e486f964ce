"""Model: the base of Params, Result and the classes in them. A thin, fixed view of a JSON object."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, dataclass_transform

from ._errors import ParamsError
from ._schema import Schema, hint
from ._signature import of_class
from ._values import UNSET, WireError, to_wire

if TYPE_CHECKING:
    from inspect import Signature

__all__ = ["Model", "Open", "plain", "wrap"]


class Binding:
    """The place of a generated class in a schema, and its names."""

    __slots__ = ("names", "nested", "open", "pointer", "schema", "wires")

    def __init__(self, schema: Schema, entry: dict[str, Any]) -> None:
        self.schema = schema
        self.pointer: str = entry["p"]
        self.nested: dict[str, str] = entry.get("m", {})
        self.open: bool = entry.get("open", False)
        renamed = {wire: name for name, wire in entry.get("w", {}).items()}
        at = schema.at(self.pointer)
        own = at.get("properties") if isinstance(at, dict) else None
        wires = [*(own if isinstance(own, dict) else ()), *entry.get("x", ())]
        self.names: dict[str, str] = {renamed.get(wire, wire): wire for wire in wires}
        self.wires = set(wires)


class _ModelType(type):
    """Keeps what all classes have in common out of help(), which shows dir()."""

    def __dir__(cls) -> list[str]:
        return []


@dataclass_transform(kw_only_default=True)
class Model(metaclass=_ModelType):
    """An object of a tool's arguments or result.

    Params(path="a", dryRun=True) takes fields by their Python names (or, through **, by their original
    names) and checks them against the schema; nothing is coerced. An absent field reads as UNSET and is
    not sent. None is null. Objects cannot be changed. r["x"] and "x" in r use the original names.
    """

    __slots__ = ("_data",)

    _data: dict[str, Any]
    _binding: ClassVar[Binding | None] = None
    _optional: ClassVar[frozenset[str]] = frozenset()
    __signature__: ClassVar[Signature]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # Defaults are for readers and type checkers. As class attributes they would hide the values.
        cls._optional = frozenset(name for name, value in vars(cls).items() if value is UNSET)
        for name in cls._optional:
            delattr(cls, name)
        cls.__signature__ = of_class(cls)
        cls.__doc__ = cls.__doc__ if "__doc__" in vars(cls) and cls.__doc__ else ""  # not the base class's

    if TYPE_CHECKING:

        def __init__(self) -> None:
            """Of a class without fields; others get theirs from the fields."""

    else:

        def __init__(self, /, **fields):
            self._fill(fields)

        def __getattr__(self, name):
            return self._field(name)

    def _fill(self, fields: dict[str, Any]) -> None:
        binding = _binding_of(type(self))
        errors: list[tuple[str, str]] = []
        data: dict[str, Any] = {}
        for name, value in fields.items():
            if value is UNSET:
                continue
            wire = binding.names.get(name, name if binding.open or name in binding.wires else None)
            if wire is None:
                known = ", ".join(binding.names) or "none"
                errors.append(("", f"unknown field {name!r}{hint(name, binding.names)}; fields: {known}"))
            elif wire in data:
                errors.append(("", f"{wire!r} is given twice"))
            else:
                data[wire] = value
        object.__setattr__(self, "_data", _checked(type(self), binding, data, errors))

    @classmethod
    def model_validate(cls, obj: Any) -> Any:
        """From a dict with the original names: takes exactly what the schema takes. Raises ParamsError."""
        return _make(cls, _checked(cls, _binding_of(cls), obj, []))

    @classmethod
    def model_json_schema(cls) -> Any:
        """The JSON Schema of this class, without descriptions."""
        binding = _binding_of(cls)
        return plain(binding.schema.at(binding.pointer))

    def model_dump(self) -> dict[str, Any]:
        """A plain dict with the original names; what is sent."""
        result: dict[str, Any] = plain(self._data)
        return result

    def _field(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        binding = _binding_of(type(self))
        wire = binding.names.get(name, name)
        if wire in self._data:
            return self[wire]
        if name in binding.names:
            return UNSET
        raise AttributeError(f"{type(self).__name__} has no field {name!r}{hint(name, binding.names)}")

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} objects are fixed; make a new one")

    def __getitem__(self, wire: str) -> Any:
        spec = _binding_of(type(self)).nested.get(wire)
        return wrap(sys.modules[type(self).__module__].__dict__, spec, self._data[wire])

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
        names = {wire: name for name, wire in _binding_of(type(self)).names.items()}
        fields = (f"{names.get(wire, wire)}={self[wire]!r}" for wire in self._data)
        return f"{type(self).__name__}({', '.join(fields)})"


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

else:

    class Open(Model):
        """A Model without fields that takes any names."""


def _binding_of(cls: type[Model]) -> Binding:
    """Read from _tools.json when first needed."""
    binding = cls.__dict__.get("_binding")
    if not isinstance(binding, Binding):
        tool = sys.modules[cls.__module__].__dict__["_tool"]
        binding = tool.binding(cls.__name__)
        cls._binding = binding
    return binding


def _make(cls: type[Model], data: dict[str, Any]) -> Model:
    model = object.__new__(cls)
    object.__setattr__(model, "_data", data)
    return model


def _dump(value: Any) -> Any:
    return value.model_dump() if isinstance(value, Model) else UNSET


def _checked(cls: type[Model], binding: Binding, value: Any, errors: list[tuple[str, str]]) -> dict[str, Any]:
    """The JSON form of value. Raises ParamsError with errors and everything else that is wrong."""
    try:
        data = to_wire(value, _dump)
        errors += [(p.path, p.text) for p in binding.schema.errors(data, binding.pointer)]
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


def plain(value: Any) -> Any:
    """A deep copy of a JSON value."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
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


def wrap(names: dict[str, Any], spec: str | None, value: Any) -> Any:
    """Gives objects in value the classes that spec says: "X" an object, "[X" a list, "{X" a mapping, "X|Y" either."""
    if not spec or not isinstance(value, (dict, list)):
        return value
    alternatives = _alternatives(spec)
    mark = "[" if isinstance(value, list) else "{"
    inside = [_inner(a) for a in alternatives if a[0] == mark]
    if isinstance(value, list):
        return [wrap(names, inside[0], item) for item in value] if inside else value
    classes = [names[a] for a in alternatives if a[0] not in "[{"]
    if len(classes) == 1 and not inside:
        return _make(classes[0], value)
    for cls in classes:
        binding = _binding_of(cls)
        if not binding.schema.errors(value, binding.pointer):
            return _make(cls, value)
    return {name: wrap(names, inside[0], item) for name, item in value.items()} if inside else value
