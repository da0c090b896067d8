"""The response of one exchange, watched: its tokens, its facts and its end.

What happens to a chunk after the first token is in `chunks`, the hot path; the rest is here, as one
method for each state that a response can be in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from llm_trace import semconv as s
from llm_trace.asgi.answer import facts_of
from llm_trace.asgi.body import BodyCopy
from llm_trace.asgi.chunks import watched
from llm_trace.asgi.gaps import GapCounter
from llm_trace.asgi.sse import (
    Memory,
    Seen,
    StreamFacts,
    TokenDetector,
    framing_of,
    is_unfinished,
)
from llm_trace.asgi.types import Message, Send
from llm_trace.core.outcome import SUCCESS
from llm_trace.core.record import ChunkGaps
from llm_trace.core.timeline import Timeline
from llm_trace.core.usage import Usage

_memory: Final = Memory()
"""What the streams of this process were seen to say alike."""

_BODIES: Final = frozenset({"http.response.body", "http.response.zerocopysend"})
"""Messages with a part of the body: as bytes, or as a file that is open."""


def _nothing(*_: object) -> None:
    """Nothing happens any more."""


async def _nobody(_message: Message) -> None:
    """Nobody sends any more."""


class Reply:
    """What the app sends, as it goes by.

    Args:
        send: The server's `send`; the app gets `Reply.send`.
        timeline: Gets the stamps of tokens.
        declared: Whether the route is a generation's.
        limit: Bytes of a JSON answer to look at.
        over: Called with the stamp of the last byte.
    """

    __slots__ = (
        "_arm",
        "_declared",
        "_detector",
        "_facts",
        "_first_chunk",
        "_gaps",
        "_is_text",
        "_json",
        "_limit",
        "_over",
        "_settle",
        "_trailers",
        "_watch",
        "client_gone",
        "hidden",
        "seen",
        "send",
        "status",
        "timeline",
    )

    def __init__(
        self,
        send: Send,
        timeline: Timeline,
        *,
        declared: bool,
        limit: int,
        over: Callable[[int], None],
    ) -> None:
        self.timeline = timeline
        self._declared = declared
        self._limit = limit
        self._over = over
        self._json: BodyCopy | None = None
        self._detector: TokenDetector | None = None
        self._facts: StreamFacts | None = None
        self._first_chunk = self.seen = self.status = 0
        self._trailers = self._is_text = self.hidden = self.client_gone = False
        self._watch: Callable[[Message, int], None] = self._unstarted
        self._gaps = GapCounter()
        now = timeline.clock.monotonic_ns
        self.send, self._arm, self._settle = watched(send, now, self, self._gaps)

    def watch(self, message: Message, now: int) -> None:
        """A message was sent at `now`, before the first token."""
        self._watch(message, now)

    def unusual(self, message: Message, now: int, seen: int) -> None:
        """A message after the first token that is not one more token of the same kind."""
        self._saw(seen, now)
        self._look_for_end(message, now)

    def client_left(self) -> None:
        """The server says that nobody listens any more."""
        self.client_gone = True

    def settle(self) -> None:
        """Bring the timeline up to date with what the hot path has counted."""
        self._settle()

    def release(self) -> None:
        """The app has returned: what refers to us goes, so that all goes at once with the request.

        Else only the garbage collector finds it, and servers run it rarely, or not at all.
        """
        self.send = _nobody
        self._watch = self._over = self._arm = self._settle = _nothing

    # --- the states of a response -------------------------------------------------------------

    def _unstarted(self, message: Message, _now: int) -> None:
        """Before `http.response.start`."""
        if message["type"] != "http.response.start":
            return
        self.status = int(message["status"])  # apps give members of `HTTPStatus`, too
        self._trailers = message.get("trailers", False)
        headers = {name.lower(): value for name, value in message.get("headers", ())}
        content_type = headers.get(b"content-type", b"").decode("latin-1")
        self.hidden = headers.get(b"content-encoding", b"identity") != b"identity"
        self._choose_watch(content_type)

    def _choose_watch(self, content_type: str) -> None:
        framing = framing_of(content_type)
        self._watch = self._plain_body
        if framing == "text" and self.status not in SUCCESS:
            return  # it says what went wrong
        if framing == "text" and not (self._declared or self.timeline.calls):
            self._watch = self._undeclared  # any text is a token only in a generation
        elif framing is not None and not self.hidden:
            self._is_text = framing == "text"
            self._detector = TokenDetector(framing, _memory)
            self._watch = self._stream_body
        elif framing is None and "json" in content_type and not self.hidden:
            self._json = BodyCopy(self._limit)

    def _undeclared(self, message: Message, now: int) -> None:
        """Text of a route that is no known generation: a call may still be made while it runs."""
        if self.timeline.calls:
            self._choose_watch("text/plain")
            self._watch(message, now)
        else:
            self._plain_body(message, now)

    def _plain_body(self, message: Message, now: int) -> None:
        """An answer in one piece, or one whose tokens cannot be seen."""
        body = message.get("body", b"")
        if body and self._json is not None:
            self._json.feed(body)
        self._look_for_end(message, now)

    def _stream_body(self, message: Message, now: int) -> None:
        """A stream before its first token."""
        body = message.get("body", b"")
        if body and self._detector is not None:
            self._saw(self._detector.feed(body), now)
        self._look_for_end(message, now)

    def _saw(self, seen: int, now: int) -> None:
        self.seen |= seen
        if seen & Seen.CHUNK:
            self._first_chunk = self._first_chunk or now
        if not seen & Seen.TOKEN:
            return
        timeline = self.timeline
        if timeline.first_token_sent:
            self._gaps.add(now - timeline.last_token_sent)
        else:
            timeline.first_token_sent = now
            timeline.waited_until(now)
        if seen & Seen.ANSWER:
            timeline.first_answer_sent = timeline.first_answer_sent or now
        timeline.last_token_sent = now
        if self._detector is not None:
            self._arm(self._detector, seen)

    def _look_for_end(self, message: Message, now: int) -> None:
        kind = message["type"]
        if kind in _BODIES:
            over = not message.get("more_body", False) and not self._trailers
        elif kind == "http.response.trailers":
            over = not message.get("more_trailers", False)
        else:
            over = kind == "http.response.pathsend"
        if over:
            self._over(now)

    # --- what it came to ----------------------------------------------------------------------

    def close(self, now: int) -> None:
        """Nothing more comes: read what the stream left open, and bring the timeline up to date."""
        self._settle()
        if self._detector is not None:
            self._saw(self._detector.close(), now)
        self._facts = self._read_facts()

    @property
    def streamed(self) -> bool:
        """Whether tokens could be seen as they came."""
        return self._detector is not None

    @property
    def unterminated(self) -> bool:
        """Whether an answer began, and its stream ended without its end."""
        return not self._is_text and is_unfinished(self.seen)

    @property
    def stream_error(self) -> str | None:
        """`error.type` of an error inside an answer: in a stream, or in a generation's document.

        A document that has an error's status is one, whatever it says.
        """
        counts = self.streamed or (self._declared and self.status in SUCCESS)
        return self._facts.error_type if counts and self._facts is not None else None

    @property
    def stream_status(self) -> int:
        """The HTTP status that it would have had, had the response not been started; or 0."""
        return (self._facts and self._facts.error_status) or 0

    @property
    def gaps(self) -> ChunkGaps | None:
        """The gaps between chunks with tokens."""
        timeline = self.timeline
        return self._gaps.freeze(timeline.last_token_sent - timeline.first_token_sent)

    def said(self) -> tuple[Usage, dict[str, Any]]:
        """Usage and `gen_ai.response.*` attributes, as the answer itself gave them."""
        facts = self._facts
        if facts is None:
            return Usage(), {}
        response: dict[str, Any] = {
            s.RESPONSE_ID: facts.response_id,
            s.RESPONSE_MODEL: facts.response_model,
            s.RESPONSE_FINISH_REASONS: tuple(facts.finish_reasons) or None,
        }
        if self._first_chunk:
            elapsed = self._first_chunk - self.timeline.received
            response[s.RESPONSE_TIME_TO_FIRST_CHUNK] = elapsed / 1e9
        return facts.usage or Usage(), response

    def _read_facts(self) -> StreamFacts | None:
        """What the answer said of itself, in a stream or in one JSON document."""
        if self._detector is not None:
            return self._detector.facts
        document = self._json.document() if self._json is not None else None
        return None if document is None else facts_of(document)
