"""Spans in the order of their tree, whatever their parents claim."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Node:
    """A span's place: ``index`` in the given order, and its depth."""

    index: int
    depth: int
    orphan: bool


def order_tree(spans: Sequence[tuple[str, str, int]]) -> list[Node]:
    """Every span once, parents before children, siblings by start.

    ``spans`` are (span id, parent id or empty, start). A span whose parent is not
    there is a root of its own (``orphan``), after the true roots; of spans in a circle
    of parents the earliest becomes such a root. Works without recursion, so depth
    costs nothing. Of two spans with one id the first is the parent of their children.
    """
    by_id: dict[str, int] = {}
    for i, (span_id, _, _) in enumerate(spans):
        by_id.setdefault(span_id, i)
    children: dict[int, list[int]] = {}
    roots: list[int] = []
    orphans: list[int] = []
    for i, (span_id, parent_id, _) in enumerate(spans):
        if not parent_id:
            roots.append(i)
        elif parent_id in by_id and parent_id != span_id:
            children.setdefault(by_id[parent_id], []).append(i)
        else:
            orphans.append(i)

    def by_start(i: int) -> tuple[int, int]:
        return spans[i][2], i

    found: list[Node] = []
    seen: set[int] = set()
    for root in (*sorted(roots, key=by_start), *sorted(orphans, key=by_start)):
        _walk(root, children, by_start, found, seen, orphan=bool(spans[root][1]))
    for left in sorted(range(len(spans)), key=by_start):
        if left not in seen:
            _walk(left, children, by_start, found, seen, orphan=True)
    return found


def _walk(
    root: int,
    children: dict[int, list[int]],
    by_start: Callable[[int], tuple[int, int]],
    found: list[Node],
    seen: set[int],
    *,
    orphan: bool,
) -> None:
    """Append ``root`` and all below it that were not seen before."""
    stack = [(root, 0)]
    while stack:
        i, depth = stack.pop()
        if i in seen:
            continue
        seen.add(i)
        found.append(Node(i, depth, orphan and i == root))
        below = sorted(children.get(i, ()), key=by_start, reverse=True)
        stack += [(child, depth + 1) for child in below]
