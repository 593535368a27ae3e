"""Spans take their places in a tree, whatever their parents claim."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dashboards.queries.tree import order_tree


def shape(*spans):
    """Ids in order, indented by depth; a caret marks an orphan."""
    nodes = order_tree(spans)
    return [" " * n.depth + ("^" if n.orphan else "") + spans[n.index][0] for n in nodes]


def test_children_stand_below_their_parent_by_start():
    """Parents come first, siblings in the order they began."""
    spans = [("c", "a", 3), ("b", "a", 2), ("a", "", 1), ("d", "b", 5)]
    assert shape(*spans) == ["a", " b", "  d", " c"]


def test_a_span_without_its_parent_is_a_root_of_its_own():
    """A remote or lost parent does not hide a span; true roots come first."""
    assert shape(("x", "gone", 0), ("a", "", 5), ("b", "a", 6)) == ["a", " b", "^x"]


def test_a_circle_of_parents_is_cut_at_its_earliest():
    """Spans that name each other as parents are all shown, once."""
    assert shape(("b", "a", 2), ("a", "b", 1), ("s", "s", 9)) == ["^s", "^a", " b"]


def test_depth_does_not_matter():
    """Five thousand nested spans are one walk, not five thousand calls."""
    spans = [(str(i), str(i - 1) if i else "", i) for i in range(5000)]
    assert [node.depth for node in order_tree(spans)] == list(range(5000))


ids = st.sampled_from("abcdef")


@given(st.lists(st.tuples(ids, ids | st.just(""), st.integers(0, 9)), max_size=12))
def test_every_span_is_shown_once_below_something_shown(spans):
    """Of any spans each has one place, and a deeper one follows its parent."""
    nodes = order_tree(spans)
    assert sorted(node.index for node in nodes) == list(range(len(spans)))
    depth = -1
    for node in nodes:
        assert node.depth <= depth + 1
        depth = node.depth
