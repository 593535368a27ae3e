"""Patterns of tools' schemas: applied, and never for long."""

from __future__ import annotations

import pytest

from proxy.pipelines.problems import StageProblem
from proxy.pipelines.runs import Trace
from proxy.pipelines.tools.kit import ReadyTool, ToolCall, _arguments, check_schema
from proxy.pipelines.tools.patterns import matcher


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


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        (r"^\p{L}+$", "Ærø", "a1"),
        (r"^\u{e9}[\p{L}-]$", "éa", "e1"),
        (r"^(?<year>\d{4})$", "2024", "24"),
        (r"^\d+$", "12", "٣"),
        (r"^\w+$", "a_1", "é"),
        (r"^[\w-\.]+$", "a-b.c", "a b"),
        (r"^[[a-z]+$", "[a", "A"),
        (r"^[a-z&&b~~c]+$", "a&~", "-"),
        (r"^\cA$", "\x01", "A"),
        (r"^[^]$", "x", ""),
        (r"^{a}$", "{a}", "a"),
        (r"^\/$", "/", "x"),
        ("a$", "ba", "a\n"),
    ],
)
def test_patterns_mean_what_json_schema_says(pattern: str, good: str, bad: str):
    """ECMA 262: Python's engine refused some of these, and the tool with them, and read others
    in another way.
    """
    found = matcher(pattern)
    assert (found.search(good), found.search(bad)) == (True, False)


@pytest.mark.parametrize("pattern", ["(a{1,400}){1,400}", "a" * 3000, r"(a)\1", "(", ")", "[", "a{2,1}"])
def test_patterns_that_are_too_large_or_none_are_not_applied(pattern: str):
    """Nor is one on a text for which it would take long."""
    assert matcher(pattern).search("a") is None


def test_a_text_that_would_take_a_pattern_long_is_left_to_the_tool():
    """Linear still means its states times the characters."""
    found = matcher(".*a.{0,900}b" * 3)
    assert found.search("a" * 100) is False
    assert found.search("a" * 100_000) is None
    assert matcher("^(a+)+$").search("a" * 1_000_000 + "!") is False
