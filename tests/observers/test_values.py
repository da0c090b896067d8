"""Attribute values: typed, bounded and valid UTF-8, whatever came in."""

import enum
import logging
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_trace.observers.values import MAX_ITEMS, clean, clean_all, cut, seconds


class Whole:
    """An integer of another library."""

    def __index__(self):
        return 3


class Tensor:
    """A number that is no index and says so, as arrays do."""

    def __index__(self):
        raise TypeError("only integers")

    def __float__(self):
        return 1.5


class Matrix:
    """Many numbers: it has both methods and refuses both."""

    def __index__(self):
        raise TypeError("only scalars")

    def __float__(self):
        raise TypeError("only scalars")


class Mute:
    """Raises when it is asked for its text."""

    def __str__(self):
        raise RuntimeError("no text")


class Operation(str, enum.Enum):
    """An enum of text, as apps have them."""

    CHAT = "chat"


class Level(enum.IntEnum):
    """An enum of numbers."""

    HIGH = 7


SENTINEL = type("NotGiven", (), {"__repr__": lambda _: "NOT_GIVEN"})()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (5, 5),
        (1.5, 1.5),
        ("text", "text"),
        ("", ""),
        (float("nan"), None),
        (float("inf"), None),
        (2**63 - 1, 2**63 - 1),
        (-(2**63), -(2**63)),
        (2**63, str(2**63)),
        (2**70, str(2**70)),
        pytest.param(10**5000, None, id="5,001 digits"),
        (Whole(), 3),
        (Tensor(), 1.5),
        (Matrix(), None),
        (Level.HIGH, 7),
        (Operation.CHAT, "chat"),
        (Decimal("0.5"), 0.5),
        (Decimal("NaN"), None),
        (Decimal("1e999"), None),
        (Fraction(1, 2), 0.5),
        (1j, "1j"),
        (SENTINEL, "NOT_GIVEN"),
        ({"a": 1}, "{'a': 1}"),
        (b"ab", "b'ab'"),
        (["a", 1, None], ("a", "1", "None")),
        (("a",), ("a",)),
        ([], ()),
        ({"a"}, ("a",)),
        (frozenset({5}), ("5",)),
        ("a\ud800b", "a?b"),
        (["\udfff"], ("?",)),
    ],
)
def test_a_value_is_made_one_that_every_backend_takes(value, expected):
    """None is absent, numbers are numbers, sequences are tuples of text, the rest is text."""
    made = clean(value, 1024)

    assert expected == made
    assert type(expected) is type(made)


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "abc"),
        ("äöü", 3, "ä"),
        ("äöü", 4, "äö"),
        ("😀😀", 7, "😀"),
        ("😀", 3, ""),
        ("x" * 2_000_000, 4, "xxxx"),
    ],
)
def test_text_is_cut_in_bytes_between_characters(text, limit, expected):
    """The bound is of UTF-8 bytes and never leaves half a character."""
    assert expected == cut(text, limit)


@given(st.text(), st.integers(1, 40))
def test_what_is_cut_is_a_prefix_within_the_bound(text, limit):
    """Any text, cut anywhere, is shorter than the bound and the beginning of what it was."""
    made = cut(text, limit)

    assert len(made.encode()) <= limit
    assert text.encode("utf-8", "replace").decode().startswith(made)


def test_sequences_are_bounded():
    """In number and in the length of each."""
    assert ("aa",) * MAX_ITEMS == clean(["aaa"] * 1000, 2)


def test_a_value_whose_own_code_raises_costs_only_itself(caplog):
    """The other attributes stay, and nothing is logged for it."""
    pairs = [("a", 1), ("b", Mute()), ("c", [Mute()]), ("d", None), ("k" * 20, "x" * 20)]

    made = clean_all(pairs, 10)

    assert {"a": 1, "k" * 10: "x" * 10} == made
    assert [] == [r for r in caplog.records if r.levelno >= logging.WARNING]


def test_durations_become_seconds_behind_a_prefix():
    """Nanoseconds are exported as seconds."""
    assert [("ttft.a", 0.5)] == seconds({"a": 500_000_000}, "ttft.")
