"""Functions as tools: what their annotations ask for, and what their results become."""

from __future__ import annotations

import datetime as dt
import enum
import json
import warnings
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from proxy.errors import ProxyError
from proxy.pipelines.bound import Bound
from proxy.pipelines.callables import Callables
from proxy.pipelines.problems import StageProblem
from proxy.pipelines.runs import Trace
from proxy.pipelines.settings import PythonTool
from proxy.pipelines.text import MOST_ITEMS, as_text
from proxy.pipelines.tools.function import FunctionTool

TRACE = Trace(1, 2, 1)


class Colour(enum.Enum):
    RED = "red"


class Item(BaseModel):
    name: str
    since: dt.date | None = None


@dataclass
class Part:
    count: int


def order(item: Item, colour: Colour = Colour.RED) -> Item:
    assert isinstance(item, Item)
    assert isinstance(colour, Colour)
    return item


async def order_later(item: Item) -> list[Part]:
    return [Part(len(item.name))]


def day(on: dt.date) -> str:
    return on.strftime("%j")


def by_place(a: int, /) -> int:
    return a


def any_number(*numbers: int) -> int:
    return len(numbers)


async def piece_by_piece() -> AsyncIterator[int]:
    yield 1


async def answer(name: str, arguments: dict[str, Any], isolated: bool = False) -> str:
    given = PythonTool(name="t", function=f"{__name__}:{name}", isolated=isolated)
    source = FunctionTool(given, Callables())
    try:
        [made] = await source.start()
        return await made.call(arguments, TRACE)
    finally:
        await source.close()


@pytest.mark.parametrize("isolated", [False, True])
async def test_a_function_gets_what_its_annotations_ask_for(isolated: bool):
    """Models, enums and dates, in this process and in one of its own; a model's fields come back."""
    given = {"item": {"name": "n", "since": "2024-02-03"}, "colour": "red"}
    told = json.loads(await answer("order", given, isolated))
    assert told == {"name": "n", "since": "2024-02-03"}
    assert json.loads(await answer("order_later", {"item": {"name": "ab"}}, isolated)) == [{"count": 2}]


async def test_an_argument_that_makes_no_such_thing_is_refused_before_the_call():
    """JSON Schema takes any text for a date."""
    assert await answer("day", {"on": "2024-02-01"}) == "032"
    with pytest.raises(StageProblem) as refused:
        await answer("day", {"on": "soon"})
    assert refused.value.kind == "bad_arguments"
    assert "argument on" in refused.value.text


@pytest.mark.parametrize(
    ("name", "says"),
    [("by_place", "cannot be given by name"), ("any_number", "cannot be given by name"),
     ("piece_by_piece", "return one result")],
)  # fmt: skip
async def test_a_function_that_no_model_can_call_is_refused_at_the_start(name: str, says: str):
    """One sentence names the tool and the function."""
    with pytest.raises(ProxyError, match=says) as refused:
        await answer(name, {})
    assert name in str(refused.value)


def test_a_callable_that_is_no_function_gets_its_arguments_as_they_came():
    """Nothing is known of its parameters but their schema."""
    assert Bound(Item).given({"name": "n"}) == {"name": "n"}


def numbers() -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        (b"\xffab", "�ab"),
        ({"on": dt.date(2024, 1, 2), "parts": [Part(1)]}, '{"on": "2024-01-02", "parts": [{"count": 1}]}'),
        (Colour.RED, "red"),
        (None, "null"),
    ],
)  # fmt: skip
def test_a_result_is_told_by_its_parts_and_not_by_its_name_in_python(value: object, text: str):
    """Dates, dataclasses and enums as JSON."""
    assert as_text(value) == text


def test_an_iterator_without_an_end_is_told_as_far_as_is_bearable():
    """And no further."""
    assert len(json.loads(as_text(numbers()))) == MOST_ITEMS


def no_json(x: int = object()) -> str:  # type: ignore[assignment]
    return str(x)


def test_a_default_that_is_no_json_is_left_out_without_a_word():
    """A start with one printed a library's warning; here each warning is an error."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        schema = Bound(no_json).schema
    assert seen == []
    assert "default" not in schema["properties"]["x"]
