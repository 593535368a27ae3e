"""The spans of a trace as trees, whatever order they came in and whatever is missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from collectors.normalise.classify import Kind, kind_of
from collectors.normalise.span import Span

REPAIR_SKEW = "clock_skew:moved_into_parent"


@dataclass(slots=True)
class Node:
    """A span, what it stands for, and what is below it."""

    span: Span
    kind: Kind
    children: list[Node] = field(default_factory=list)
    parent: Node | None = None
    moved: bool = False

    def below(self) -> Iterator[Node]:
        """This node and all below it, parents first, without recursion."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(reversed(node.children))

    def above(self) -> Iterator[Node]:
        """Its ancestors, the nearest first."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent


def forest(spans: Iterable[Span]) -> list[Node]:
    """The trees of one trace; a span whose parent is not there is a root.

    Of spans with the same id the longest is kept. A circle of parents is cut open.
    """
    nodes: dict[str, Node] = {}
    for span in spans:
        known = nodes.get(span.span_id)
        if known is None or span.end_ns - span.start_ns > known.span.end_ns - known.span.start_ns:
            nodes[span.span_id] = Node(span, kind_of(span))
    roots = []
    for node in sorted(nodes.values(), key=lambda n: (n.span.start_ns, n.span.span_id)):
        parent = nodes.get(node.span.parent_id)
        if parent is None or parent is node or _is_above(node, parent):
            roots.append(node)
        else:
            node.parent = parent
            parent.children.append(node)
    for root in roots:
        _straighten(root)
    return roots


def _is_above(node: Node, below: Node) -> bool:
    """Would ``below`` as the parent of ``node`` close a circle?"""
    return any(one is node for one in below.above())


def _straighten(root: Node) -> None:
    """Another host's span that begins before its cause, or after its end, is moved into it."""
    for node in root.below():
        for child in node.children:
            by = _skew(node.span, child.span)
            if by:
                for one in child.below():
                    one.span, one.moved = _shifted(one.span, by), True


def _skew(parent: Span, child: Span) -> int:
    if (parent.service, parent.instance) == (child.service, child.instance):
        return 0
    if child.end_ns - child.start_ns > parent.end_ns - parent.start_ns:
        return 0
    if child.start_ns < parent.start_ns:
        return parent.start_ns - child.start_ns
    return parent.end_ns - child.end_ns if child.start_ns > parent.end_ns else 0


def _shifted(span: Span, by: int) -> Span:
    return replace(
        span,
        start_ns=span.start_ns + by,
        end_ns=span.end_ns + by,
        first_chunk_ns=span.first_chunk_ns + by if span.first_chunk_ns else 0,
        last_chunk_ns=span.last_chunk_ns + by if span.last_chunk_ns else 0,
    )
