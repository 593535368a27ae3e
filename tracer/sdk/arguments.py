"""A call's arguments by the names of its function's parameters."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from tracer.sdk.kinds import is_a
from tracer.sdk.sizes import NAME_EXTRA, size_of, size_of_plain_value

_OWNERS = frozenset({"self", "cls"})
_COUNTS = ("top_k", "k")


@dataclass(frozen=True, slots=True)
class Parameters:
    """What is kept of a signature.

    ``names``: those that can be given by place, where no parameter has a star; ``owner``: the
    first one's, if it is called as methods call their object; ``of_class``: the class that the
    function was written in, if its first parameter has another name; ``count``: the default
    of ``top_k`` or ``k``.
    """

    signature: inspect.Signature | None = None
    names: tuple[str, ...] | None = None
    owner: str = ""
    of_class: str = ""
    count: int | None = None


class Arguments:
    """Names a function's arguments. Its signature is read with the first call, and kept here,
    with what decorates the function: a table of all of them would keep closures alive.
    """

    __slots__ = ("_function", "_read")

    def __init__(self, function: Callable[..., Any] | None = None) -> None:
        self._function = function
        self._read: Parameters | None = None

    @property
    def parameters(self) -> Parameters:
        if self._read is None:
            self._read = _read(self._function)
        return self._read

    def size(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
        """The size of :meth:`named`, which are not made for plain ones given by place."""
        known = self._read or self.parameters
        names = known.names
        if (
            kwargs or not args or names is None or len(args) > len(names) or known.owner or known.of_class
        ):  # fmt: skip
            return size_of(self.named(args, kwargs))
        size = at = 0
        for one in args:
            found = size_of_plain_value(one)
            if found is None:
                return size_of(self.named(args, kwargs))
            size += len(names[at]) + NAME_EXTRA + found
            at += 1  # noqa: SIM113  enumerate would take longer
        return size

    def named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Without the method's own object; only what was named by the call if it cannot be told."""
        known = self._read or self.parameters
        names = known.names
        if names is not None and len(args) <= len(names):
            bound: dict[str, Any] = {}
            at = 0
            for one in args:  # zip and enumerate would take twice as long for the usual few
                bound[names[at]] = one
                at += 1  # noqa: SIM113
            if kwargs:
                bound.update(kwargs)
        elif known.signature is not None:
            try:
                bound = dict(known.signature.bind(*args, **kwargs).arguments)
            except TypeError:  # called wrongly
                return dict(kwargs)
        else:
            return dict(kwargs)
        if known.owner:
            bound.pop(known.owner, None)
        elif known.of_class and args and _is_of(args[0], known.of_class):
            bound.pop(next(iter(bound)), None)
        return bound


def _is_of(value: object, name: str) -> bool:
    """Whether it is an object of a class of this name, or such a class."""
    kinds = type.__dict__["__mro__"].__get__(value if is_a(value, type) else type(value))
    return any(kind.__name__ == name for kind in kinds)


def _read(function: Callable[..., Any] | None) -> Parameters:
    """Without annotations and defaults, which may hold anything."""
    if function is None:
        return Parameters()
    try:
        found = _signature(function)
        parameters = tuple(found.parameters.values())
        places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        plain = all(p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) for p in parameters)
        names = tuple(p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD)
        first = parameters[0].name if parameters and parameters[0].kind in places else ""
        count = [c for name in _COUNTS if (c := whole(_default(found, name))) is not None]
        kept = [
            inspect.Parameter(p.name, p.kind, default=p.empty if p.default is p.empty else None)
            for p in parameters
        ]
        owner = first if first in _OWNERS else ""
        of_class = _class_around(function) if first and not owner else ""
    except Exception:  # noqa: BLE001  no signature, or annotations that cannot be evaluated
        return Parameters()
    return Parameters(
        inspect.Signature(kept), names if plain else None, owner, of_class, count[0] if count else None
    )


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    if sys.version_info >= (3, 14):  # there annotations are evaluated when they are asked for
        from annotationlib import Format

        return inspect.signature(function, annotation_format=Format.STRING)
    return inspect.signature(function)


def _class_around(function: Callable[..., Any]) -> str:
    """The class that a function was written in; empty where it was written in none."""
    path = getattr(function, "__qualname__", "").split(".") if inspect.isfunction(function) else []
    return path[-2] if len(path) > 1 and path[-2] != "<locals>" else ""


def _default(signature: inspect.Signature, name: str) -> object:
    found = signature.parameters.get(name)
    return None if found is None or found.default is found.empty else found.default


def whole(value: object) -> int | None:
    """A whole number of any library, if a double holds it exactly; never raises."""
    try:
        found = int(value) if is_a(value, Integral) and type(value) is not bool else None  # type: ignore[call-overload]
    except Exception:  # noqa: BLE001  a stranger's number
        return None
    return found if found is not None and abs(found) < 2**53 else None
