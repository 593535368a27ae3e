"""Tokens of a tree, counted once although parent and child both tell them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from collectors.normalise.call import Usage, usage_of
from collectors.normalise.classify import Kind
from collectors.normalise.tree import Node

Number = TypeVar("Number", int, float)


def tree_usage(root: Node) -> Usage:
    """For each figure the larger of a span's own and the sum of its children's.

    A parent that repeats its children's tokens adds nothing, one that tells more than they
    do (a child was not exported) counts, and one that tells only its last call does not.
    """
    made: dict[int, Usage] = {}
    for node in reversed(list(root.below())):
        inner = [made.pop(id(child)) for child in node.children]
        made[id(node)] = _larger(usage_of(node.span), _sum_of(node.children, inner))
    return made[id(root)]


def _sum_of(children: list[Node], told: list[Usage]) -> Usage:
    """Choices of one call (``n > 1``) are engine spans that began together: one prompt."""
    prompts: dict[object, int] = {}
    for child, usage in zip(children, told, strict=True):
        if usage.input is not None:
            key = child.span.start_ns if child.kind is Kind.ENGINE else id(child)
            prompts[key] = max(prompts.get(key, 0), usage.input)
    return Usage(
        sum(prompts.values()) if prompts else None,
        _sum(u.output for u in told),
        _sum(u.cached for u in told),
        _sum(u.reasoning for u in told),
        _sum(u.cost for u in told),
    )


def _sum(values: Iterable[Number | None]) -> Number | None:
    known = [value for value in values if value is not None]
    return sum(known[1:], known[0]) if known else None


def _larger(one: Usage, other: Usage) -> Usage:
    return Usage(
        _pick(one.input, other.input),
        _pick(one.output, other.output),
        _pick(one.cached, other.cached),
        _pick(one.reasoning, other.reasoning),
        _pick(one.cost, other.cost),
    )


def _pick(mine: Number | None, theirs: Number | None) -> Number | None:
    known = [value for value in (mine, theirs) if value is not None]
    return max(known, default=None)
