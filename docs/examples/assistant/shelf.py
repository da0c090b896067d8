"""The documents: cut into passages, found by full text, in one SQLite file.

Searches are traced with OpenTelemetry's API, as a team does that had tracing before.
"""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import NamedTuple

from opentelemetry import trace

_tracer = trace.get_tracer("assistant.shelf")
_WORD = re.compile(r"\w+")
_PASSAGE = 400


class Passage(NamedTuple):
    """A piece of a document."""

    title: str
    text: str


class Shelf:
    """Passages in a full-text index; every call opens the file, so any thread may make it."""

    def __init__(self, path: str | Path) -> None:
        self._path = str(path)
        with self._open() as database:
            database.execute("CREATE VIRTUAL TABLE IF NOT EXISTS passages USING fts5(title, text)")
            database.execute("CREATE TABLE IF NOT EXISTS journal(owner, asked, answered)")

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=10)

    def add(self, title: str, text: str) -> int:
        """Index a document, replacing one of the same title: the number of its passages."""
        pieces = [text[at : at + _PASSAGE] for at in range(0, len(text), _PASSAGE)]
        with self._open() as database:
            database.execute("DELETE FROM passages WHERE title = ?", (title,))
            database.executemany(
                "INSERT INTO passages VALUES (?, ?)", ((title, piece) for piece in pieces)
            )
        return len(pieces)

    def search(self, question: str, top_k: int) -> list[Passage]:
        """The passages that say most of the question's words, best first."""
        attributes: dict[str, str | int] = {
            "gen_ai.operation.name": "retrieval",
            "gen_ai.data_source.id": "handbook",
            "gen_ai.retrieval.top_k": top_k,
        }
        with _tracer.start_as_current_span("retrieval handbook", attributes=attributes):
            words = " OR ".join(f'"{word}"' for word in _WORD.findall(question))
            if not words:
                return []
            with self._open() as database:
                rows = database.execute(
                    "SELECT title, text FROM passages WHERE passages MATCH ? ORDER BY rank LIMIT ?",
                    (words, top_k),
                ).fetchall()
            return [Passage(*row) for row in rows]

    def note(self, owner: str, asked: int, answered: int) -> None:
        """Write down how many characters somebody asked and was answered."""
        with self._open() as database:
            database.execute("INSERT INTO journal VALUES (?, ?, ?)", (owner, asked, answered))

    def usage(self, owner: str) -> dict[str, int]:
        """What somebody has used."""
        with self._open() as database:
            row = database.execute(
                "SELECT count(*), total(asked), total(answered) FROM journal WHERE owner = ?",
                (owner,),
            ).fetchone()
        return dict(zip(("requests", "asked", "answered"), map(int, row), strict=True))
