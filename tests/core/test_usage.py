"""Token counts: what is known is added, what is not stays unknown."""

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_trace.core.usage import MAX_TOKENS, Usage, count, total


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0),
        (12, 12),
        (12.0, 12),
        (Decimal(12), 12),
        (MAX_TOKENS, MAX_TOKENS),
        (MAX_TOKENS + 1, None),
        (2**70, None),
        (-1, None),
        (1.5, None),
        (math.nan, None),
        (math.inf, None),
        (True, None),
        (None, None),
        ("12", None),
        ("9" * 5000, None),
        (b"12", None),
        ([], None),
        ({}, None),
    ],
)
def test_only_a_whole_number_in_range_is_a_count(value, expected):
    """Booleans, text, fractions, negatives and numbers beyond exact doubles are missing."""
    assert expected == count(value)


@given(st.one_of(st.floats(), st.integers(), st.text(), st.binary(), st.booleans(), st.none()))
def test_any_value_is_a_count_in_range_or_missing(value):
    """Nothing that an engine may report makes the count raise or leave its range."""
    number = count(value)

    assert number is None or (type(number) is int and 0 <= number <= MAX_TOKENS)


def test_what_is_known_lies_over_what_was_known():
    """A later, partial report replaces only the counts that it has; 0 is a count."""
    before = Usage(input_tokens=10, output_tokens=5, cached_tokens=8)

    after = before.overlaid(Usage(output_tokens=7, cached_tokens=0, reasoning_tokens=2))

    assert Usage(10, 7, 0, 2) == after


def test_a_total_adds_what_is_known():
    """A field that one call knows is not lost because another call does not know it."""
    usages = [Usage(10, 5, None), Usage(20, None, 0), Usage()]

    assert Usage(30, 5, 0, None) == total(usages)


def test_the_total_of_nothing_is_unknown():
    """Without calls there are no counts, and no zeros either."""
    assert Usage() == total([])
