"""Patterns of tools' schemas: applied, and never for long."""

from __future__ import annotations

import pytest

from proxy.pipelines.problems import StageProblem
from proxy.pipelines.runs import Trace
from proxy.pipelines.tools.kit import ReadyTool, ToolCall, _arguments, check_schema


async def _nothing(_arguments: dict[str, object], _trace: Trace) -> str:
    return ""


def given(pattern: str, text: str) -> dict[str, object]:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}}
    tool = check_schema(ReadyTool("t", "", schema, 1.0, 10, _nothing))
    return _arguments(ToolCall("c", "t", f'{{"a": "{text}"}}'), tool)


@pytest.mark.parametrize(("pattern", "text"), [("^[A-Z]{2}$", "ABC"), ("b", "a"), (r"^\d+$", "")])
def test_a_text_that_does_not_match_is_refused(pattern: str, text: str):
    """The model is told the pattern."""
    with pytest.raises(StageProblem) as refused:
        given(pattern, text)
    assert refused.value.kind == "bad_arguments"
    assert "does not match" in refused.value.text


@pytest.mark.parametrize(("pattern", "text"), [("^[A-Z]{2}$", "AB"), ("b", "abc"), (r"\d", "a1")])
def test_a_text_that_matches_anywhere_goes_on(pattern: str, text: str):
    """As JSON Schema has it: not from the beginning."""
    assert given(pattern, text) == {"a": text}


def test_a_pattern_that_would_never_end_ends():
    """Python's own engine takes 2 to the 40th steps for it, with the event loop in its hand."""
    with pytest.raises(StageProblem):
        given("^(a+)+$", "a" * 40 + "!")


def test_a_pattern_of_another_kind_is_said_and_left_to_the_tool(caplog: pytest.LogCaptureFixture):
    """Looking around takes no bounded time."""
    assert given(r"^(?!never)\w+(?<!x)$", "never") == {"a": "never"}
    assert "not applied" in caplog.text
