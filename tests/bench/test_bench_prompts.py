"""Prompts: as long as asked, and never twice the same beginning."""

import asyncio
import re

import pytest

from llm_trace.bench.prompts import Prompts
from llm_trace.bench.rulers import Line, calibrate
from llm_trace.bench.sample import Sample


class Pieces:
    """A tokenizer that cuts words into pieces of so many letters, behind a template."""

    kind = "exact"

    def __init__(self, letters, template=7):
        self.letters, self.template = letters, template
        self.asked = 0

    async def count(self, text):
        """Count the pieces."""
        self.asked += 1
        words = text.split()
        return self.template + sum(-(-len(word) // self.letters) for word in words)


@pytest.mark.parametrize("letters", [1, 2, 3, 5, 20])
@pytest.mark.parametrize("tokens", [40, 128, 1000, 5000])
def test_a_prompt_has_exactly_the_tokens_asked_for(letters, tokens):
    """Whatever the tokenizer makes of words, within a few questions."""
    ruler = Pieces(letters)
    prompt = asyncio.run(Prompts(ruler).make(tokens))

    assert prompt.tokens == tokens == asyncio.run(ruler.count(prompt.text))
    assert ruler.asked <= 14


def test_no_two_prompts_begin_alike():
    """The first word is salt: no block of a prompt can be in a cache."""
    prompts = Prompts(Pieces(3))
    first = [asyncio.run(prompts.make(64)).text.split()[0] for _ in range(50)]

    assert len(set(first)) == 50
    assert all(re.fullmatch("[0-9a-f]{16}", salt) for salt in first)


def test_a_prompt_shorter_than_its_salt_says_how_long_it_is():
    """What cannot be reached is not claimed."""
    prompt = asyncio.run(Prompts(Pieces(1)).make(5))

    assert prompt.tokens == 23


def probed(counts):
    """Calibrate with a server that answers these counts of prompt tokens."""
    answers = iter(counts)
    asked = []

    async def probe(text):
        asked.append(len(text.split()))
        return Sample(started=0, prompt_tokens=next(answers))

    return asyncio.run(calibrate(probe)), asked


def test_two_prompts_calibrate_a_server_without_a_tokenizer():
    """Tokens are a straight line over words."""
    line, asked = probed([100, 500])

    assert asked == [41, 241]
    assert line.kind == "calibrated"
    assert asyncio.run(line.count("a b c")) == (100 - 41 * 2 + 3 * 2)


@pytest.mark.parametrize("counts", [[None, None], [50, None], [50, 50], [50, 40]])
def test_a_server_that_counts_nothing_is_estimated(counts):
    """And called so."""
    line, _ = probed(counts)

    assert (line.kind, asyncio.run(line.count("word " * 100))) == ("estimated", 130)


def test_a_prompt_by_a_line_is_as_long_as_the_line_says():
    """The rest is the server's to say, in its usage."""
    prompt = asyncio.run(Prompts(Line("calibrated", 1.5, 10)).make(400))

    assert abs(prompt.tokens - 400) <= 1
