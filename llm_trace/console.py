"""The screen: progress to stderr, results to stdout, colour only where a person sees it."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TextIO

from llm_trace.core.clock import SYSTEM
from llm_trace.errors import LlmTraceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

WIDTH: Final = 80
"""Columns that the screen of a command keeps to."""
_CODES: Final = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_QUIET_SECONDS: Final = 10
_OURS: Final = re.compile(r"(\x1b\[[0-9;]*m|[\n\t])")
"""What our own lines hold that is not printable."""


@dataclass(frozen=True, slots=True)
class Style:
    """Colours, or none."""

    enabled: bool = False

    def __call__(self, text: str, *names: str) -> str:
        """Dress the text."""
        if not self.enabled or not names:
            return text
        codes = ";".join(_CODES[name] for name in names)
        return f"\x1b[{codes}m{text}\x1b[0m"


def style_for(stream: TextIO, environ: Mapping[str, str]) -> Style:
    """Use colour on a terminal only, and not when NO_COLOR is set."""
    plain = environ.get("NO_COLOR") or environ.get("TERM") == "dumb"
    return Style(enabled=stream.isatty() and not plain)


def printable(text: str) -> str:
    """A stranger's text: nothing of it may move a terminal's cursor."""
    return "".join(c if c.isprintable() else "?" for c in text)


def harmless(text: str) -> str:
    """`text` with whatever strangers put into it made printable; colours and line ends stay."""
    parts = _OURS.split(text)
    parts[::2] = map(printable, parts[::2])  # what lies between ours
    return "".join(parts)


def cut(text: str, width: int = WIDTH) -> str:
    """A stranger's text in at most so many columns."""
    text = printable(text)
    return text if len(text) <= width else f"{text[: width - 2]}.."


def bar(start: float, length: float, whole: float, room: int) -> str:
    """A stretch of a whole drawn in `room` columns: at its place, and never nothing."""
    left = min(max(int(start * room // whole), 0), room - 1)
    return " " * left + "#" * max(1, min(int(length * room // whole), room - left))


def stdout_style() -> Style:
    """The style of what is printed."""
    return style_for(sys.stdout, os.environ)


def print_lines(lines: Iterable[str]) -> None:
    """Print results for people.

    Raises:
        LlmTraceError: They cannot be written, as where a disk is full.
        BrokenPipeError: Whoever read them went away.
    """
    text = harmless("".join(f"{line}\n" for line in lines))
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as fault:
        discard_stdout()
        raise LlmTraceError(f"the results cannot be written: {fault.strerror}.") from None


def discard_stdout() -> None:
    """Let what could not be written go nowhere: Python tries it once more when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_json(document: Mapping[str, Any]) -> None:
    """Print results for programs: one document, and nothing beside it."""
    print_lines([json.dumps(document, indent=2)])


class Progress:
    """One line that is rewritten on a terminal, and now and then a new one elsewhere."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self.style = style_for(self.stream, os.environ)
        self._terminal = self.stream.isatty()
        self._open = False
        self._shown = SYSTEM.monotonic_ns()

    def say(self, text: str) -> None:
        """Write a line that stays."""
        self._close()
        self._write(f"{harmless(text)}\n")

    def update(self, text: str, *, force: bool = False) -> None:
        """Show where things are."""
        now = SYSTEM.monotonic_ns()
        text = harmless(text)
        if self._terminal:
            self._open = True
            self._write(f"\r\x1b[2K{self.style(text[: WIDTH - 1], 'dim')}")
        elif force or now - self._shown > _QUIET_SECONDS * 1e9:
            self._shown = now
            self._write(f"{text[:WIDTH]}\n")

    def _close(self) -> None:
        if self._open:
            self._write("\r\x1b[2K")
            self._open = False

    def _write(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()
