"""The screen: colour for people, plain text for everything else."""

from io import StringIO

import pytest

from llm_trace.console import (
    WIDTH,
    Progress,
    Style,
    bar,
    cut,
    print_json,
    print_lines,
    printable,
    style_for,
)


class Terminal(StringIO):
    """A stream that a person looks at."""

    def isatty(self):
        """Be a terminal."""
        return True


@pytest.mark.parametrize(
    ("stream", "environ", "coloured"),
    [
        (Terminal(), {}, True),
        (Terminal(), {"NO_COLOR": "1"}, False),
        (Terminal(), {"NO_COLOR": ""}, True),
        (Terminal(), {"TERM": "dumb"}, False),
        (StringIO(), {}, False),
    ],
)
def test_colour_needs_a_terminal_and_consent(stream, environ, coloured):
    """NO_COLOR, a dumb terminal and a pipe get none."""
    assert style_for(stream, environ).enabled is coloured


def test_a_style_dresses_text_or_leaves_it():
    """Codes go around the text, and are ended."""
    assert Style(enabled=True)("x", "bold", "red") == "\x1b[1;31mx\x1b[0m"
    assert Style()("x", "bold") == "x"


def test_progress_rewrites_one_line_on_a_terminal():
    """What stays is said after the line is wiped."""
    stream = Terminal()
    progress = Progress(stream)
    progress.update("w" * 200)
    progress.say("ready")

    assert stream.getvalue().startswith("\r\x1b[2K")
    assert stream.getvalue().count("w") == WIDTH - 1
    assert stream.getvalue().endswith("\r\x1b[2Kready\n")


def test_progress_elsewhere_is_rare_lines():
    """A log file gets no line a second, only those that are forced or long awaited."""
    stream = StringIO()
    progress = Progress(stream)
    progress.update("at once")
    progress.update("forced", force=True)
    progress.say("ready")

    assert stream.getvalue() == "forced\nready\n"


def test_results_go_to_stdout_whole_and_apart(capsys):
    """A line each for people, one document for programs; and nothing else beside it."""
    print_lines(line for line in ("a", "", "b"))
    print_json({"schema": "x/1", "name": "模"})

    assert capsys.readouterr() == (
        'a\n\nb\n{\n  "schema": "x/1",\n  "name": "\\u6a21"\n}\n',
        "",
    )


def test_a_result_that_fails_half_way_prints_nothing(capsys):
    """Half a table looks like a whole one."""

    def lines():
        yield "a"
        raise LookupError

    with pytest.raises(LookupError):
        print_lines(lines())

    assert capsys.readouterr().out == ""


def test_a_strangers_name_moves_no_cursor():
    """What is no letter, sign or blank is a question mark; letters of any script stay."""
    assert printable("模 a\x1b[2J\n\u202eb") == "模 a?[2J??b"


def test_whatever_a_line_repeats_of_strangers_moves_no_cursor(capsys):
    """Results, progress and sentences: our colours and line ends stay, all else is a sign."""
    hostile = "\x1b[2J\x1b]0;x\x07\x9bA\r"
    print_lines([f"{Style(enabled=True)('a', 'red')}{hostile}"])
    stream = StringIO()
    Progress(stream).say(f"b\tc{hostile}")
    Progress(stream).update(hostile, force=True)

    assert capsys.readouterr().out == "\x1b[31ma\x1b[0m?[2J?]0;x??A?\n"
    assert stream.getvalue() == "b\tc?[2J?]0;x??A?\n?[2J?]0;x??A?\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a" * 9, "a" * 9), ("a" * 10, "a" * 7 + ".."), ("\x1b[2Jabcdefg", "?[2Jabc..")],
)
def test_what_is_too_long_ends_in_two_dots(text, shown):
    """In nine columns, and as printable as any stranger's text."""
    assert cut(text, 9) == shown


@pytest.mark.parametrize(
    ("start", "length", "drawn"),
    [
        (0, 10, "#####"),
        (0.0, 1.9, "#"),
        (4, 4, "  ##"),
        (9.9, 0.0, "    #"),
        (10, 5, "    #"),
        (-3, 2, "#"),
    ],
)
def test_a_stretch_is_drawn_at_its_place(start, length, drawn):
    """Of a whole of ten in five columns; what is short or lies outside is one sign at least."""
    assert bar(start, length, 10, 5) == drawn
