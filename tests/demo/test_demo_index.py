"""The full-text index: real text, real ranking, any question."""

import pytest

from llm_trace.demo.index import Index, passages, subjects


@pytest.fixture(scope="module")
def index():
    """An index over the whole reference."""
    built = Index()
    yield built
    built.close()


def test_the_best_passage_is_about_what_was_asked(index):
    """A question about a subject finds that subject's passages."""
    found = index.search("How does yield work?", 6)

    assert len(found) == 6
    assert "yield" in {passage.topic for passage in found}


@pytest.mark.parametrize("question", ["", "?!", '"', "NEAR(", "a OR", "text:x", "naïve * -"])
def test_no_question_is_a_syntax_error(index, question):
    """Whatever the user types is words, never the search engine's query language."""
    assert isinstance(index.search(question, 3), list)


def test_the_same_question_finds_the_same_passages(index):
    """Equal questions make equal prompts, so that a prefix cache can hold them."""
    assert index.search("What is a generator?", 6) == index.search("What is a generator?", 6)


def test_passages_are_bounded_and_none_is_empty():
    """Every passage fits a prompt, and every subject has one."""
    pieces = list(passages())

    assert all(0 < len(piece.text) <= 900 for piece in pieces)
    assert {piece.topic for piece in pieces} == set(subjects())
