"""Tool calls as servers tell them, each in its own way."""

from __future__ import annotations

import pytest

from proxy.pipelines.calls import MOST_CALLS, StreamedCalls, whole_calls
from proxy.pipelines.problems import PipelineProblem


def piece(index: object = None, call_id: str | None = None, **function: object) -> dict[str, object]:
    made: dict[str, object] = {"function": function}
    if index is not None:
        made["index"] = index
    return made if call_id is None else {**made, "id": call_id}


def read(*deltas: list[object]) -> list[tuple[str, str, str]]:
    calls = StreamedCalls(lambda name: name == "mine")
    for given in deltas:
        calls.take(given)
    return [(c.id, c.name, c.arguments) for c in calls.own()]


TWO = [("a", "f", '{"x": 1}'), ("b", "g", "{}")]


@pytest.mark.parametrize(
    "deltas",
    [
        # OpenAI, vLLM: the id once, the pieces by index, interleaved
        [[piece(0, "a", name="f", arguments="")], [piece(1, "b", name="g", arguments="{}")],
         [piece(0, arguments='{"x"')], [piece(0, arguments=": 1}")]],
        # whole calls one after the other, without an index, or all with the same
        [[piece(None, "a", name="f", arguments='{"x": 1}')], [piece(None, "b", name="g", arguments="{}")]],
        [[piece(0, "a", name="f", arguments='{"x": 1}')], [piece(0, "b", name="g", arguments="{}")]],
        # both in one chunk, without an index
        [[piece(None, "a", name="f", arguments='{"x": 1}'), piece(None, "b", name="g", arguments="{}")]],
        # the id and the name again in each piece
        [[piece(0, "a", name="f", arguments='{"x"')], [piece(0, "a", name="f", arguments=": 1}")],
         [piece(1, "b", name="g", arguments="{}")]],
        # the arguments as an object; an index that is none; noise
        [[piece([], "a", name="f", arguments={"x": 1}), 7, None], [piece(1, "b", name="g", arguments="{}")]],
    ],
)  # fmt: skip
def test_streamed_calls_are_put_together_in_every_form(deltas: list[list[object]]):
    """Six forms of the same two calls."""
    assert read(*deltas) == TWO


def test_the_clients_calls_go_out_under_indexes_of_their_own():
    """The first call that it sees is number 0, whatever the model's number was."""
    calls = StreamedCalls(lambda name: name == "mine")
    assert calls.take([piece(0, "a", name="f", arguments="{}")]) == []
    out = calls.take([piece(1, "b", name="mine", arguments="{}")])
    assert [one["index"] for one in out] == [0]
    assert calls.theirs


def test_whole_calls_are_read_and_parted():
    """Arguments as text or object; what has no name is the pipeline's, which knows no such tool."""
    message = {"tool_calls": [piece(None, "a", name="f", arguments={"x": 1}), 5, {"function": 3},
                              piece(None, "c", name="", arguments="{}"),
                              piece(None, "b", name="mine", arguments="{}")]}  # fmt: skip
    own, theirs = whole_calls(message, lambda name: name == "mine")
    assert [(c.id, c.name, c.arguments) for c in own] == [("a", "f", '{"x": 1}'), ("c", "", "{}")]
    assert [c["id"] for c in theirs] == ["b"]
    assert whole_calls({"tool_calls": "x"}, bool) == ([], [])


def test_more_calls_than_are_read_fail_the_request():
    """In both forms: none is left out in silence."""
    many = [piece(i, f"c{i}", name="f", arguments="{}") for i in range(MOST_CALLS + 1)]
    with pytest.raises(PipelineProblem, match="more than"):
        read(many)
    with pytest.raises(PipelineProblem, match="more than"):
        whole_calls({"tool_calls": many}, lambda _: False)


@pytest.mark.parametrize(
    "names", [["p", "id"], ["p", "", "i", "d"], ["p", "id", "pid"], ["pid", "pid"], ["", "pid"]]
)
def test_a_name_in_pieces_is_joined_and_one_told_again_is_not(names: list[str]):
    """As official clients do; the arguments come behind it."""
    deltas = [[piece(0, "a" if i == 0 else None, name=name, arguments="")] for i, name in enumerate(names)]
    again = [[piece(0, name="pid", arguments="{")], [piece(0, name="pid", arguments="}")]]
    assert read(*deltas, [piece(0, arguments="{}")]) == [("a", "pid", "{}")]
    assert read(*deltas, *again) == [("a", "pid", "{}")]


def test_the_pieces_of_a_clients_name_reach_the_client_once_it_is_whole():
    """All of them, in their order, as they came: the client joins them itself."""
    calls = StreamedCalls(lambda name: name == "mine")
    first, second, third = piece(0, "a", name="mi"), piece(0, name="ne"), piece(0, arguments="{}")
    assert calls.take([first]) == []
    assert calls.take([second]) == [{**first, "index": 0}, {**second, "index": 0}]
    assert calls.take([third]) == [{**third, "index": 0}]
    assert calls.own() == []
