"""Functions of this program that cells call: their schemas, and the check of what a kernel sends."""

from __future__ import annotations

import inspect
import json
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

Function = Callable[..., Any]

_SIMPLE: dict[Any, dict[str, Any]] = {
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    bool: {"type": "boolean"},
    list: {"type": "array"},
    dict: {"type": "object"},
    None: {"type": "null"},
    type(None): {"type": "null"},
}
_PYTHON: dict[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "string": (str,),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def _schema(annotation: Any) -> dict[str, Any]:
    """JSON Schema of an annotation; {}, which everything fits, of those that have none here."""
    if isinstance(annotation, typing.Hashable) and annotation in _SIMPLE:
        return dict(_SIMPLE[annotation])
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return {"enum": list(args)}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_schema(a) for a in args]}
    if origin in (list, dict) and not args:  # typing.List
        return dict(_SIMPLE[origin])
    if origin is list:
        return {"type": "array", "items": _schema(args[0])}
    if origin is dict and args[0] is str:
        return {"type": "object", "additionalProperties": _schema(args[1])}
    return {}


def _fits(value: Any, schema: dict[str, Any]) -> bool:
    """Whether @value fits what _schema() has made."""
    if "anyOf" in schema:
        return any(_fits(value, s) for s in schema["anyOf"])
    if "enum" in schema:
        return any(type(value) is type(e) and value == e for e in schema["enum"])
    kind = schema.get("type")
    if kind is None:
        return True
    if not isinstance(value, _PYTHON[kind]) or (isinstance(value, bool) and kind != "boolean"):
        return False
    if "items" in schema and isinstance(value, list):
        return all(_fits(v, schema["items"]) for v in value)
    if "additionalProperties" in schema and isinstance(value, dict):
        return all(_fits(v, schema["additionalProperties"]) for v in value.values())
    return True


def _parameters(function: Function) -> dict[str, Any]:
    """The inputSchema of a function."""
    try:
        hints = typing.get_type_hints(function)
    except Exception:  # names that cannot be resolved
        hints = {}
    properties: dict[str, Any] = {}
    required: list[str] = []
    open_ended = False
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            open_ended = True
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            raise ValueError(f"cells pass arguments by name, which parameter {name!r} of {function!r} does not accept")
        properties[name] = _schema(hints.get(name, parameter.annotation))
        if parameter.default is parameter.empty:
            required.append(name)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": open_ended}


def is_coroutine_function(function: Function) -> bool:
    """Also of an object whose call is one."""
    call = getattr(function, "__call__", None)  # noqa: B004 - not whether it can be called
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def definitions(functions: Mapping[str, Function]) -> list[dict[str, Any]]:
    """The functions as tools of MCP."""
    return [
        {"name": name, "description": inspect.getdoc(function) or "", "inputSchema": _parameters(function)}
        for name, function in functions.items()
    ]


def arguments(function: Function, text: str) -> dict[str, Any]:
    """The arguments that a kernel has sent. ValueError: they do not fit the function."""
    try:
        values: dict[str, Any] = json.loads(text)
    except RecursionError:
        raise ValueError("the arguments are nested too deeply") from None
    schema = _parameters(function)
    for name in schema["required"]:
        if name not in values:
            raise ValueError(f"argument {name!r} is missing")
    for name, value in values.items():
        if name not in schema["properties"]:
            if not schema["additionalProperties"]:
                raise ValueError(f"there is no parameter {name!r}")
        elif not _fits(value, schema["properties"][name]):
            raise ValueError(f"argument {name!r} does not fit its type")
    return values
