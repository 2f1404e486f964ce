"""Signatures that are made when they are first read: importing 200 tools with 2,000 fields needs none."""

from __future__ import annotations

from inspect import Parameter, Signature
from inspect import signature as inspect_signature
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Lazy", "brief", "of_class", "of_function", "one_line"]


class _Text(str):
    """An annotation, shown without quotes."""

    __repr__ = str.__str__


class Lazy(Signature):
    """What make() returns."""

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], Signature]) -> None:
        self._make = make
        self._made: Signature | None = None

    def _real(self) -> Signature:
        if self._made is None:
            self._made = self._make()
        return self._made

    @property
    def _parameters(self) -> Mapping[str, Parameter]:
        return self._real().parameters

    @property
    def _return_annotation(self) -> Any:
        return self._real().return_annotation

    def replace(self, **changes: Any) -> Signature:  # type: ignore[override]
        return self._real().replace(**changes)

    def __reduce__(self) -> Any:
        return self._real().__reduce__()


def _fields(cls: Any) -> list[Parameter]:
    return [
        Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            default=cls._defaults.get(name, Parameter.empty),
            annotation=_Text(kind),
        )
        for name, kind in cls.__annotations__.items()
    ]


def of_class(cls: Any) -> Lazy:
    """(*, path: str, dryRun: bool | None = None)"""
    return Lazy(lambda: Signature(_fields(cls)))


def of_function(params: Any, returns: str) -> Lazy:
    """(params: Params | None = None, /, *, path: str, dryRun: bool | None = None) -> Result"""

    def make() -> Signature:
        name = "params"
        while name in params.__annotations__:  # 28 of 1,258 real tools have such a field
            name += "_"
        first = Parameter(name, Parameter.POSITIONAL_ONLY, default=None, annotation=_Text("Params | None"))
        return Signature([first, *_fields(params)], return_annotation=_Text(returns))

    return Lazy(make)


def one_line(cls: Any) -> str:
    """path: str, dryRun: bool | None = None"""
    return ", ".join(
        f"{name}: {kind} = {cls._defaults[name]}" if name in cls._defaults else f"{name}: {kind}"
        for name, kind in cls.__annotations__.items()
    )


def brief(module: Any) -> str:
    """name(path: str, dryRun?: bool) -> Result, of a generated module; long types are cut."""
    params = module.Params
    kinds = {
        name: kind.removesuffix(" | None") if params._defaults.get(name, 0) is None else kind
        for name, kind in params.__annotations__.items()
    }
    fields = (
        f"{name}{'?' if name in params._defaults else ''}: {kind if len(kind) <= 40 else kind[:37] + '...'}"
        for name, kind in kinds.items()
    )
    returns = str(inspect_signature(module.run).return_annotation)
    return f"{module.__name__.rpartition('.')[2]}({', '.join(fields)}) -> {returns}"
