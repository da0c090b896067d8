"""Words of the command line: what each type takes, and what it says of the rest."""

from argparse import ArgumentTypeError
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_trace import cli
from llm_trace.errors import LlmTraceError
from llm_trace.words import bearer, json_object, seconds, several, whole

TYPES = {
    "whole": whole(64),
    "from": whole(48, least=4),
    "port": whole(65_535, least=0, use="1 to 65535, or 0 for a free one"),
    "several": several(64),
    "seconds": seconds(3600, "an hour"),
    "object": json_object('{"question": "why"}'),
}


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("whole", "1", 1),
        ("whole", "064", 64),
        ("from", "4", 4),
        ("port", "0", 0),
        ("several", "8", (8,)),
        ("several", "64, 1,8,8", (1, 8, 64)),
        ("seconds", "0.5", 0.5),
        ("seconds", "3600", 3600.0),
        ("object", '{"a": [1]}', {"a": [1]}),
        ("object", "{}", {}),
    ],
)
def test_a_usable_word_is_its_value(kind, text, value):
    """Several numbers come ascending, each once: a table needs no row twice."""
    assert value == TYPES[kind](text)


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        ("whole", "0", "'0' cannot be used: use 1 to 64"),
        ("whole", "65", "'65' cannot be used: use 1 to 64"),
        ("whole", "many", "'many' cannot be used: use 1 to 64"),
        ("whole", "", "'' cannot be used: use 1 to 64"),
        ("whole", "1_0", "'1_0' cannot be used: use 1 to 64"),
        ("whole", "٣", "'٣' cannot be used: use 1 to 64"),
        ("whole", "0" * 19 + "10", "'000000000000000000010' cannot be used: use 1 to 64"),
        ("whole", "9" * 5000, f"'{'9' * 60}'… cannot be used: use 1 to 64"),
        ("from", "3", "'3' cannot be used: use 4 to 48"),
        ("port", "http", "'http' cannot be used: use 1 to 65535, or 0 for a free one"),
        ("several", "1,,2", "'' cannot be used: use 1 to 64"),
        ("seconds", "0", "'0' cannot be used: use seconds, up to an hour"),
        ("seconds", "nan", "'nan' cannot be used: use seconds, up to an hour"),
        ("seconds", "inf", "'inf' cannot be used: use seconds, up to an hour"),
        ("seconds", "5m", "'5m' cannot be used: use seconds, up to an hour"),
        ("object", "[1]", """'[1]' is no JSON object: use one such as {"question": "why"}"""),
        ("object", "{", """'{' is no JSON object: use one such as {"question": "why"}"""),
    ],
)
def test_an_unusable_word_is_told_with_what_to_use(kind, text, said):
    """What was wrong, which value, what to do; of a long one the beginning."""
    with pytest.raises(ArgumentTypeError) as refusal:
        TYPES[kind](text)

    assert said == str(refusal.value)


@pytest.mark.parametrize("kind", TYPES)
@given(text=st.text() | st.from_regex(r"[\[{]{0,9}[-+0-9._e,]{0,40}"))
def test_any_word_is_a_value_or_a_sentence(kind, text):
    """No other exception, which argparse would not tell."""
    with suppress(ArgumentTypeError):
        TYPES[kind](text)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("roofline m --device L4 --tensor-parallel two", "'two' cannot be used: use 1 to 4096"),
        ("roofline m --device L4 --prompts 1,x", "'x' cannot be used: use 1 to 10000000"),
        ("explain trace.json --tensor-parallel 0", "'0' cannot be used: use 1 to 4096"),
        ("demo --requests 501", "'501' cannot be used: use 1 to 500"),
        ("demo --app-port 65536", "'65536' cannot be used: use 1 to 65535, or 0 for a free one"),
        ("diff a b --blocks 49", "'49' cannot be used: use 4 to 48"),
        ("probe http://h --timeout 3601", "'3601' cannot be used: use seconds, up to an hour"),
        ("bench http://h --wait 86401", "'86401' cannot be used: use seconds, up to a day"),
        ("bench http://h --body 1", "'1' is no JSON object: use one such as {\"temperature\": 0}"),
    ],
)
def test_every_command_tells_it_the_same_way(words, said, capsys):
    """Status 2, and the option that it was given to."""
    with pytest.raises(SystemExit) as end:
        cli.main(words.split())

    assert end.value.code == 2
    err = capsys.readouterr().err
    assert err.endswith(f"{said}\n")
    assert f"argument {words.split()[-2]}:" in err


def test_a_key_is_read_from_the_environment(monkeypatch):
    """Without the line end that a file's last line has; without a name no header is sent."""
    monkeypatch.setenv("KEY", " k3y\n")

    assert bearer("--key-env", "KEY") == {"authorization": "Bearer k3y"}
    assert bearer("--key-env", None) == {}


@pytest.mark.parametrize("key", ["", "  ", "schlüssel", "a\r\nb: c"])
def test_a_key_that_cannot_be_sent_is_told_and_not_shown(key, monkeypatch):
    """The option, the variable and what to do."""
    monkeypatch.setenv("KEY", key)
    with pytest.raises(LlmTraceError) as refusal:
        bearer("--key-env", "KEY")

    assert str(refusal.value) == (
        "--key-env KEY: the variable holds no key that can be sent: set it, or leave --key-env out."
    )
