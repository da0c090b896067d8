"""The screen: colour for people, plain text for everything else."""

from io import StringIO

import pytest

from llm_trace.console import WIDTH, Progress, Style, style_for


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
