"""Waits in the app itself: the phase alone says what to look at."""

from __future__ import annotations

from typing import Final

from llm_trace.diagnosis.rules.rule import Rule, always
from llm_trace.diagnosis.rules.wording import ms, took

ADMISSION: Final = Rule(
    "admission",
    always,
    took("admission"),
    "Look at what the app does before it accepts a request: auth, limits, validation, and "
    "the upload of the body.",
)
RETRIEVAL: Final = Rule(
    "retrieval",
    always,
    took("retrieval"),
    "Look at the retrieval spans: the slowest store, the number of documents, calls that "
    "could run side by side.",
)
PREPARE: Final = Rule(
    "prepare",
    always,
    took("preparing the prompt"),
    "Look at prompt assembly, the chat template and tokenisation; name the parts with "
    "llm_trace.phase.",
)
GENERATION: Final = Rule(
    "generation",
    always,
    took("earlier model calls"),
    "Shorten or drop the calls before the answer, run them side by side, or use a smaller "
    "model for them.",
)
NAMED: Final = Rule(
    "app_phase",
    always,
    lambda c: f"{c.phase} took {ms(c.time)}, {c.share:.0%} of {ms(c.waited)}",
    "Look at the app's own phase of that name.",
)
