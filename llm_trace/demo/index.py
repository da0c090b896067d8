"""A real full-text index, SQLite FTS5 with bm25, over the reference that ships with Python."""

from __future__ import annotations

import re
import sqlite3
import threading
from pydoc_data.topics import topics
from typing import TYPE_CHECKING, Final, NamedTuple

from llm_trace.demo.errors import DemoError

if TYPE_CHECKING:
    from collections.abc import Iterator

DATA_SOURCE: Final = "python-docs"
_PASSAGE: Final = 900
"""Characters: about 300 tokens for the demo's tokenizer."""
_WORD: Final = re.compile(r"\w+")


class Passage(NamedTuple):
    """One piece of a topic."""

    topic: str
    text: str


class Index:
    """Passages in memory; `search` may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        try:
            self._database.execute(
                "CREATE VIRTUAL TABLE passage USING fts5(topic, text, tokenize='porter unicode61')"
            )
        except sqlite3.OperationalError as fault:
            self._database.close()
            raise DemoError(
                f"This Python's SQLite {sqlite3.sqlite_version} has no full-text search (FTS5), "
                "which the demo's retrieval needs: run it with another Python."
            ) from fault
        self._database.executemany("INSERT INTO passage VALUES (?, ?)", passages())

    def search(self, question: str, limit: int) -> list[Passage]:
        """Return the best passages for any of the question's words, best first."""
        words = " OR ".join(f'"{word}"' for word in _WORD.findall(question))
        if not words:
            return []
        with self._lock:
            rows = self._database.execute(
                "SELECT topic, text FROM passage WHERE passage MATCH ?"
                " ORDER BY bm25(passage), rowid LIMIT ?",
                (words, limit),
            ).fetchall()
        return [Passage(*row) for row in rows]

    def close(self) -> None:
        """Let the memory go."""
        self._database.close()


def passages() -> Iterator[Passage]:
    """Cut every topic at paragraph ends, into pieces of bounded length."""
    for topic, text in sorted(topics.items()):
        piece = ""
        for paragraph in text.split("\n\n"):
            if piece and len(piece) + len(paragraph) > _PASSAGE:
                yield Passage(topic, piece[:_PASSAGE])
                piece = ""
            piece = f"{piece}\n\n{paragraph}".strip()
        yield Passage(topic, piece[:_PASSAGE])


def subjects() -> list[str]:
    """List what can be asked about."""
    return sorted(topics)
