"""Takes the ledger's lines out of an event stream again: the app reads what it would have read.

We asked for the lines, so no client of the app's may have to cope with them, and none may be
passed on to somebody who did not ask. Sans-I/O and never late: of what comes, only the beginning of
what may be such a line is held back, and that is a comment to everybody.
"""

from __future__ import annotations

from llm_trace.core.inband import MARK, MAX_LINE


class Sieve:
    """Fed with the bytes of a stream, gives them back without lines that begin with `MARK`."""

    __slots__ = ("_at_line_start", "_held", "found")

    def __init__(self) -> None:
        self.found: list[bytes] = []
        """The lines that were taken out, without their ends; the owner empties it."""
        self._held = b""
        self._at_line_start = True

    def feed(self, data: bytes) -> bytes:
        """`data` and what was held, without the ledger's lines; b"" while nothing is sure."""
        if not self._held and MARK not in data:
            if data[-1:] == b"\n":  # as nearly every chunk of a stream does
                self._at_line_start = True
                return data
            if not self._may_begin(data):
                self._at_line_start = self._at_line_start and not data
                return data
        return self._sift(self._held + data)

    def close(self) -> bytes:
        """What was held when the stream ended."""
        held, self._held = self._held, b""
        return held

    def _may_begin(self, data: bytes) -> bool:
        """Whether `data` ends in a line that may yet become one of the ledger's."""
        line_end = data.rfind(b"\n")
        if line_end < 0 and not self._at_line_start:
            return False
        last = data[line_end + 1 :]
        return bool(last) and MARK.startswith(last)

    def _sift(self, data: bytes) -> bytes:
        self._held = b""
        kept = []
        lines = data.split(b"\n")
        for number, line in enumerate(lines):
            is_last = number == len(lines) - 1
            starts = number > 0 or self._at_line_start
            if starts and is_last and self._waits(line):
                self._held = line
            elif starts and not is_last and line.startswith(MARK):
                self.found.append(line)
            else:
                kept.append(line if is_last else line + b"\n")
        passed = b"".join(kept)
        self._at_line_start = not lines[-1] or bool(self._held)
        return passed

    @staticmethod
    def _waits(line: bytes) -> bool:
        """Whether an unfinished line may be the ledger's; one that is too long is not."""
        return bool(line) and len(line) <= MAX_LINE and (line[: len(MARK)] == MARK[: len(line)])
