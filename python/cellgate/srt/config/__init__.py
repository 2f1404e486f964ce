"""Configuration: the classes of srt's Python ports. Names are in snake_case, or in camelCase as in settings files."""

from __future__ import annotations

import copy
import json
import re
import types
from collections.abc import Mapping
from typing import Any, ClassVar, NoReturn, Self, Union, dataclass_transform, get_args, get_origin, get_type_hints

IgnoreViolationsConfig = dict[str, list[str]]
_OPTIONAL = (types.UnionType, Union)  # the latter since Python 3.14


class ValidationError(ValueError):
    """A configuration is wrong."""


def _refuse(model: str, name: str, why: str) -> NoReturn:
    raise ValidationError(f"{model}.{name}: {why}")


def _snake(name: str) -> str:
    return re.sub("[A-Z]", lambda m: "_" + m[0].lower(), name)


def _camel(name: str) -> str:
    return re.sub("_(.)", lambda m: m[1].upper(), name)


def _in_snake(model: str, obj: Mapping[str, Any]) -> dict[str, Any]:
    named = {_snake(name): value for name, value in obj.items()}
    if len(named) < len(obj):
        _refuse(model, "", f"a name is given twice: {', '.join(obj)}")
    return named


def _fields(model: type[Model]) -> dict[str, Any]:
    return {n: t for n, t in get_type_hints(model).items() if get_origin(t) is not ClassVar}


@dataclass_transform(kw_only_default=True)
class Model:
    """An object with checked members. Unknown names are refused: a misspelt one would drop a rule in silence."""

    ranges: ClassVar[dict[str, tuple[int, int]]] = {}

    def __init__(self, **values: Any) -> None:
        model, fields = type(self), _fields(type(self))
        given: dict[str, Any] = {}
        for key, value in values.items():
            name = _snake(key)
            if name not in fields or name in given:
                _refuse(model.__name__, key, "unknown name" if name not in fields else "given twice")
            given[name] = value
        for name, kind in fields.items():
            if name not in given and not hasattr(model, name):
                _refuse(model.__name__, name, "required")
            value = given[name] if name in given else copy.copy(getattr(model, name))
            setattr(self, name, self._checked(name, kind, value))

    def _checked(self, name: str, kind: Any, value: Any) -> Any:
        origin, args = get_origin(kind), get_args(kind)
        if origin in _OPTIONAL:
            return None if value is None else self._checked(name, args[0], value)
        if origin is list:
            if not isinstance(value, list | tuple | None):
                _refuse(type(self).__name__, name, "must be a list")
            return [self._checked(name, args[0], v) for v in value or []]
        if origin is dict:
            if not isinstance(value, Mapping):
                _refuse(type(self).__name__, name, "must be an object")
            return {self._checked(name, args[0], k): self._checked(name, args[1], v) for k, v in value.items()}
        if kind is Any:
            return value
        if issubclass(kind, Model):
            return value if isinstance(value, kind) else kind.model_validate(value)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            _refuse(type(self).__name__, name, f"must be of type {kind.__name__}")
        low, high = self.ranges.get(name, (value, value))
        if kind is int and not low <= value <= high:
            _refuse(type(self).__name__, name, f"must be {low} to {high}")
        try:
            self.check(name, value)
        except ValueError as e:
            _refuse(type(self).__name__, name, str(e))
        return value

    def check(self, name: str, value: object) -> None:
        """Raises a ValueError for a value, or an item of a list, that is wrong."""

    @classmethod
    def model_validate(cls, obj: Any) -> Self:
        """The object that a dictionary describes."""
        if isinstance(obj, cls):
            return obj
        if not isinstance(obj, Mapping):
            _refuse(cls.__name__, "", "must be an object")
        return cls(**obj)

    @classmethod
    def model_validate_json(cls, json_data: str | bytes) -> Self:
        """The object that a JSON text describes."""
        return cls.model_validate(json.loads(json_data))

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | str | bytes) -> Self:
        """The object that a dictionary, or a JSON text, describes."""
        return cls.model_validate_json(data) if isinstance(data, str | bytes) else cls.model_validate(data)

    def model_dump(self, *, by_alias: bool = False, exclude_none: bool = False) -> dict[str, Any]:
        """A dictionary of all members; `by_alias`: with the names of settings files."""
        members: dict[str, Any] = {}
        for name, value in vars(self).items():
            if value is None and exclude_none:
                continue
            name = _camel(name) if by_alias else name
            if isinstance(value, Model):
                members[name] = value.model_dump(by_alias=by_alias, exclude_none=exclude_none)
            else:
                members[name] = copy.deepcopy(value)
        return members

    def model_dump_json(self, *, indent: int | None = None, by_alias: bool = False, exclude_none: bool = False) -> str:
        """The same as a JSON text."""
        return json.dumps(self.model_dump(by_alias=by_alias, exclude_none=exclude_none), indent=indent)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with other values for some members."""
        copied = copy.deepcopy(self) if deep else copy.copy(self)
        for name, value in (update or {}).items():
            setattr(copied, name, value)
        return copied

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        """The JSON Schema of the dictionary."""
        fields = _fields(cls)
        required = [n for n in fields if not hasattr(cls, n)]
        properties = {n: _schema(t) for n, t in fields.items()}
        for name, (low, high) in cls.ranges.items():
            properties[name]["anyOf"][0] |= {"minimum": low, "maximum": high}
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{n}={v!r}' for n, v in vars(self).items())})"


def _schema(kind: Any) -> dict[str, Any]:
    schema: dict[str, Any]
    origin, args = get_origin(kind), get_args(kind)
    if origin in _OPTIONAL:
        return {"anyOf": [_schema(args[0]), {"type": "null"}]}
    if origin is list:
        return {"type": "array", "items": _schema(args[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema(args[1])}
    if kind is Any:
        return {}
    if issubclass(kind, Model):
        schema = kind.model_json_schema()
        return schema
    return {"type": {str: "string", bool: "boolean", int: "integer"}[kind]}


def _validate_domain_pattern(value: str) -> str:
    """A host as srt's Python port takes it: a name, "localhost", or "*." before a name with a dot."""
    if "/" in value or ":" in value:
        raise ValueError(f"Invalid domain pattern '{value}': must not contain protocols, paths, or ports")
    name = value.removeprefix("*.")
    if "*" in name:
        raise ValueError(f"Invalid domain pattern '{value}': wildcards are only allowed at the start (*.example.com)")
    valid = all(name.split(".")) and "." in name
    if not valid and name != value:
        raise ValueError(f"Invalid wildcard domain '{value}': must have at least two parts after *. (*.example.com)")
    if not valid and value != "localhost":
        raise ValueError(f"Invalid domain pattern '{value}': must be a valid domain (example.com)")
    return value


class NetworkConfig(Model):
    """`network` of the settings (docs/settings.md)."""

    ranges = {"http_proxy_port": (1, 65535), "socks_proxy_port": (1, 65535)}

    allowed_domains: list[str] = []
    denied_domains: list[str] = []
    allow_unix_sockets: list[str] | None = None
    allow_all_unix_sockets: bool | None = None
    allow_local_binding: bool | None = None
    http_proxy_port: int | None = None
    socks_proxy_port: int | None = None

    def check(self, name: str, value: object) -> None:
        if name in ("allowed_domains", "denied_domains") and isinstance(value, str):
            _validate_domain_pattern(value)


class FilesystemConfig(Model):
    """`filesystem` of the settings."""

    deny_read: list[str] = []
    allow_write: list[str] = []
    deny_write: list[str] = []
    allow_git_config: bool | None = None

    def check(self, name: str, value: object) -> None:
        if value == "":
            raise ValueError("Path cannot be empty")


class RipgrepConfig(Model):
    """Has no effect: cellgate needs no ripgrep."""

    command: str = "rg"
    args: list[str] | None = None


class ResourceLimitsConfig(Model):
    """`cellgate.limits` of the settings, for the command and all that it starts."""

    ranges = {
        "max_memory_mb": (1, 65536),
        "max_cpu_seconds": (1, 86400),
        "max_file_size_mb": (1, 10240),
        "max_processes": (1, 1024),
    }

    max_memory_mb: int | None = None
    max_cpu_seconds: int | None = None
    max_file_size_mb: int | None = None
    max_processes: int | None = None


class SandboxRuntimeConfig(Model):
    """A whole configuration. `cellgate`: the section of that name of the settings, as in a settings file."""

    ranges = {"mandatory_deny_search_depth": (1, 10)}

    network: NetworkConfig
    filesystem: FilesystemConfig
    ignore_violations: IgnoreViolationsConfig | None = None
    enable_weaker_nested_sandbox: bool | None = None
    ripgrep: RipgrepConfig | None = None
    mandatory_deny_search_depth: int | None = None
    allow_pty: bool | None = None
    resource_limits: ResourceLimitsConfig | None = None
    cellgate: dict[str, Any] | None = None

    def changed_by(self, changes: Mapping[str, Any]) -> SandboxRuntimeConfig:
        """A copy with what a dictionary gives. Lists and options that it leaves out stay, in its sections as well."""
        changed: dict[str, Any] = {name: copy.deepcopy(value) for name, value in vars(self).items()}
        for name, value in _in_snake("SandboxRuntimeConfig", changes).items():
            if name in ("network", "filesystem") and isinstance(value, Mapping):
                changed[name] = changed[name].model_dump() | _in_snake(name, value)
            else:
                changed[name] = value
        return SandboxRuntimeConfig.model_validate(changed)

    def settings(self) -> dict[str, Any]:
        """The content of a settings file (docs/settings.md)."""
        settings = self.model_dump(by_alias=True, exclude_none=True)
        limits = settings.pop("resourceLimits", {})
        names = {"maxMemoryMb": "memoryMb", "maxCpuSeconds": "cpuSeconds", "maxFileSizeMb": "fileMb"}
        own = settings.setdefault("cellgate", {})
        own["limits"] = {names.get(n, "processes"): v for n, v in limits.items()} | own.get("limits", {})
        return settings
