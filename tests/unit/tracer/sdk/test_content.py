"""Sizes of arguments and results."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tracer.sdk.content import text_of
from tracer.sdk.sizes import size_of

SCALARS = st.one_of(st.integers(), st.text(max_size=20), st.booleans(), st.floats(), st.none())


@given(st.dictionaries(st.one_of(st.text(max_size=8), st.integers()), SCALARS, max_size=4))
def test_a_size_is_the_length_of_the_text_however_it_was_found(values):
    """Small plain arguments are not encoded to be measured."""
    assert size_of(values) == len(text_of(values))
