"""Arguments from JSON as a function's annotations want them: dates, enums, models of pydantic."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any

from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError
from pydantic.json_schema import PydanticJsonSchemaWarning
from pydantic_core import ArgsKwargs

from proxy.errors import ProxyError
from proxy.pipelines.problems import StageProblem

_UNNAMED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)


class Bound:
    """What ``function`` takes by name."""

    def __init__(self, function: Callable[..., Any]) -> None:
        """Raises :class:`ProxyError` where its parameters cannot be told as JSON Schema."""
        try:
            with warnings.catch_warnings():  # a default that is no JSON is left out, which harms nobody
                warnings.simplefilter("ignore", PydanticJsonSchemaWarning)
                self.schema: dict[str, Any] = TypeAdapter(function).json_schema()  # type: ignore[arg-type]
        except (PydanticUserError, PydanticSchemaGenerationError, NameError) as problem:
            raise ProxyError(
                f"its annotations make no JSON Schema ({type(problem).__name__}): annotate its "
                "parameters with plain types"
            ) from None
        self._adapter = _adapter_of(function)

    def given(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """``arguments`` as the annotations want them.

        Raises:
            StageProblem: one cannot be made of what was given.
        """
        if self._adapter is None:
            return arguments
        try:
            made: dict[str, Any] = self._adapter.validate_python(ArgsKwargs((), arguments))
        except ValidationError as problem:
            first = problem.errors(include_url=False, include_input=False, include_context=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise StageProblem("bad_arguments", f"argument {where}: {first['msg'][:300]}") from None
        return made


def _adapter_of(function: Callable[..., Any]) -> TypeAdapter[Any] | None:
    """Of a function that has the parameters and gives them back; None for another callable."""
    if not inspect.isfunction(function):
        return None
    signature = inspect.signature(function)
    if found := [p.name for p in signature.parameters.values() if p.kind in _UNNAMED]:
        raise ProxyError(f"its parameter {found[0]} cannot be given by name: a model names them all")

    @functools.wraps(function)
    def names(**arguments: Any) -> dict[str, Any]:  # noqa: ANN401
        return arguments

    return TypeAdapter(names)  # type: ignore[arg-type]
