"""A pseudonym: the same for a user and a key, and nothing of either."""

from hypothesis import given
from hypothesis import strategies as st

from llm_trace.core.pseudonym import LENGTH, pseudonym

KEY = "a key of sixteen"
ANY = st.text(st.characters())


def test_it_is_the_keyed_hash_of_the_name():
    """HMAC-SHA256, so that whoever has the key can find a user again with any tool."""
    assert pseudonym("alice", KEY) == "6e7ebcaa591c4412351e685fb001aaf0"


@given(ANY, ANY)
def test_it_is_the_same_for_the_same_user_and_the_same_key_alone(one, other):
    """Any text may name a user, also one that is no valid Unicode."""
    made = pseudonym(one, KEY)

    assert (LENGTH, made) == (len(made), pseudonym(one, KEY))
    assert made != pseudonym(one, KEY + "x")
    assert (one == other) is (made == pseudonym(other, KEY))
