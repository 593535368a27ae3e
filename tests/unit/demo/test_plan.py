"""What the demo's load is made of."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from examples.demo.plan import EXTRAS, HANDBOOK, LEVELS, plan

ASKS = [ask for phase in plan(7) for ask in phase.asks]


@given(st.integers(), st.floats(0.01, 3))
def test_the_same_seed_gives_the_same_requests(seed, scale):
    """Two runs of a seed differ in nothing, and each phase has its requests."""
    first = plan(seed, scale)
    assert first == plan(seed, scale)
    assert [p.concurrency for p in first] == [c for c, _ in LEVELS]
    assert all(len(p.asks) == max(1, round(n * scale)) for p, (_, n) in zip(first, LEVELS, strict=True))


def test_a_third_shares_a_prefix():
    """About a third of the requests begin with the same text, and the others do not."""
    shared = sum(ask.system == HANDBOOK for ask in ASKS)
    assert 0.3 <= shared / len(ASKS) <= 0.4


def test_every_kind_occurs_streamed_and_not():
    """Chat, text completions, documents, structured output, tools, two choices, both ways of answering."""
    assert set(Counter(a.kind for a in ASKS)) == {"chat", "handbook", "long", "document", "text", *EXTRAS}
    assert {a.stream for a in ASKS} == {True, False}
    assert {a.n for a in ASKS} == {1, 2}
    assert len({a.max_tokens for a in ASKS}) >= 5


def test_several_choices_are_sampled():
    """Greedy sampling with n > 1 is refused by vLLM, so that no request asks for it."""
    assert all(a.temperature > 0 for a in ASKS if a.n > 1)
