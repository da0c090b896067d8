"""One HTTP exchange with an engine, as a client's wrapper sees it go by: sans-I/O.

A wrapper says what happens (`sending`, `answered`, `read`, `complete`, `left`, `failed`) and gives
the app what `read` and `complete` return. This module knows no client; our own faults are contained
and the client's pass untouched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import wraps
from typing import TypeVar

from llm_trace import context
from llm_trace import semconv as s
from llm_trace.asgi.answer import facts_of
from llm_trace.asgi.body import BodyCopy
from llm_trace.asgi.sse import Seen, StreamFacts, TokenDetector, framing_of, is_unfinished
from llm_trace.core import faults, inband
from llm_trace.core.engine_call import EngineCall
from llm_trace.core.inside import Inside
from llm_trace.core.outcome import CLIENT_FAULT, SUCCESS, Ending, decide
from llm_trace.core.timeline import Timeline
from llm_trace.upstream import said, wire
from llm_trace.upstream.sieve import Sieve

Method = TypeVar("Method", bound=Callable[..., None])


_sending: ContextVar[Attempt | None] = ContextVar("llm_trace_sending", default=None)


def now_sending() -> Attempt | None:
    """The attempt that a client is sending where we are."""
    return _sending.get()


def is_sending(timeline: Timeline) -> bool:
    """Whether we are inside of a client's call of this request: a client may use another."""
    attempt = _sending.get()
    return attempt is not None and attempt.call.timeline is timeline


def contained(method: Method) -> Method:
    """`method`, whose faults never reach the app's call."""

    @wraps(method)
    def safe(*args: object) -> None:
        try:
            method(*args)
        except Exception as error:  # noqa: BLE001 - rule 1: never hurt the host
            faults.contain("upstream", error)

    return safe  # type: ignore[return-value]


class Attempt:
    """What is seen of one exchange.

    Args:
        call: The engine call that it belongs to.
        owned: Whether the call is ours to end; one that the app opened by hand is not.
        ask: Whether to ask the engine for its ledger.
        limit: Bytes of a JSON answer to look at.
    """

    __slots__ = (
        "_ask",
        "_asked",
        "_detector",
        "_ending",
        "_ends",
        "_first_chunk",
        "_json",
        "_limit",
        "_now",
        "_number",
        "_over",
        "_owned",
        "_seen",
        "_sent",
        "_sieve",
        "_usual",
        "call",
    )

    def __init__(self, call: EngineCall, *, owned: bool, ask: bool, limit: int) -> None:
        self.call = call
        call.attempts += 1
        self._number = call.attempts
        self._owned = owned
        self._ask = ask
        self._asked = self._over = self._ends = False
        self._limit = limit
        self._now = call.timeline.clock.monotonic_ns
        self._ending = Ending(handed_off=True)
        self._sent = self._seen = self._first_chunk = 0
        self._usual = -1  # which no chunk can be
        self._sieve: Sieve | None = None
        self._detector: TokenDetector | None = None
        self._json: BodyCopy | None = None

    # --- the request --------------------------------------------------------------------------

    @contextmanager
    def sending(self, headers: MutableMapping[str, str]) -> Iterator[None]:
        """The time in which the client sends the request and waits for the answer's head.

        `headers` carry our own meanwhile, and spans that are made inside are children of the
        call. What the app put there itself stays.
        """
        timeline = context.current()
        before: dict[str, str | None] = {}
        try:
            before = self._dress(headers)
        except Exception as error:  # noqa: BLE001 - rule 1: never hurt the host
            faults.contain("upstream", error)
        active = timeline.activate(self.call.span_id)
        token = _sending.set(self)
        self._sent = self._stamp("sent")
        try:
            yield
        except BaseException as error:
            self.failed(error)
            raise
        finally:
            with suppress(ValueError):  # a call that is torn down may end in another context
                _sending.reset(token)
            timeline.deactivate(active)
            wire.undress(headers, before)

    def _stamp(self, name: str) -> int:
        """Stamp the call, unless its token is here: an app may ask twice inside of one call."""
        now = self._now()
        if not self.call.first_token:
            setattr(self.call, name, now)
        return now

    def _dress(self, headers: MutableMapping[str, str]) -> dict[str, str | None]:
        ours = wire.headers_of(self.call, headers, ask=self._ask)
        self._asked = inband.HEADER in ours
        return wire.dress(headers, ours)

    @contained
    def wrote(self) -> None:
        """The client has a connection and begins to write the request."""
        waited = self._now() - self._sent
        self.call.attributes[s.UPSTREAM_CONNECT] = waited / 1e9

    # --- the answer ---------------------------------------------------------------------------

    @contained
    def answered(self, status: int, headers: MutableMapping[str, str]) -> None:
        """The head of the answer is here.

        Args:
            status: The HTTP status.
            headers: Its headers, by names in any case, several of one name in one value; what we
                asked for is taken out.
        """
        call = self.call
        first_byte = self._stamp("first_byte")
        call.attributes[s.HTTP_STATUS] = status
        call.attributes[s.UPSTREAM_FIRST_BYTE] = (first_byte - self._sent) / 1e9
        self._ending.status = status
        kind = headers.get("content-type", "")
        framing = framing_of(kind)
        if framing == "text" and status not in SUCCESS:
            framing = None  # it says what went wrong
        if framing is not None:
            self._detector = TokenDetector(framing)
            self._ends = framing != "text"
        elif "json" in kind:
            self._json = BodyCopy(self._limit)
        if self._asked and inband.HEADER in headers:
            self._read_ledger(framing, headers)
        if self._is_refused:
            self._conclude(None)
            self._return()

    @property
    def _is_refused(self) -> bool:
        """The head says how it ended: an app may read no further, and try again at once."""
        return self._ending.status >= CLIENT_FAULT.start

    def _read_ledger(self, framing: str | None, headers: MutableMapping[str, str]) -> None:
        """The engine answers with its ledger: between the events, or in the head."""
        if framing == "sse":
            self._sieve = Sieve()
        told = inband.read_server_timing(headers.get(inband.SERVER_TIMING, ""))
        wire.clean(headers)
        if told is not None:
            self._told(told)

    def read(self, data: bytes) -> bytes:
        """The bytes for the app of those that the client has read; b"" while none are sure.

        Every chunk of every stream comes through here: one more token of the same kind costs a
        clock read and the detector's comparison.
        """
        try:
            sieve = self._sieve
            if sieve is not None:
                data = sieve.feed(data)
                if sieve.found:
                    self._read_lines(sieve)
                if not data:
                    return data
            at = self._now()
            if self._detector is not None:
                seen = self._detector.feed(data)
                if seen == self._usual:
                    self.call.last_token = at
                else:
                    self._saw(seen, at)
            elif self._json is not None:
                self._json.feed(data)
        except Exception as error:  # noqa: BLE001 - rule 1: never hurt the host
            faults.contain("upstream", error)
        return data

    def _saw(self, seen: int, at: int) -> None:
        """A chunk that is not one more token of the kind that came last."""
        self._seen |= seen
        if seen & Seen.CHUNK:
            self._first_chunk = self._first_chunk or at
        if not seen & Seen.TOKEN:
            return
        call = self.call
        if call.first_token:
            call.last_token = at
        elif not call.timeline.closed:
            call.mark("first_token", at)
            self._usual = seen

    @contained
    def _read_lines(self, sieve: Sieve) -> None:
        for line in sieve.found:
            told = inband.read_comment(line)
            if told is None:
                faults.drop("upstream_ledger")
            else:
                self._told(told)
        sieve.found.clear()

    def _told(self, told: inband.Told) -> None:
        if told.at == inband.FIRST_TOKEN or self._detector is None:
            said.tell(self.call, Inside(told.phases))
        else:
            said.show(self.call, told.phases)

    # --- its end ------------------------------------------------------------------------------

    def received(self) -> None:
        """The wire has brought all of it; some may still be on its way to the app."""
        self._ending.complete = True

    def complete(self) -> bytes:
        """The body is at its end; the bytes for the app that were held back."""
        self._ending.complete = True
        rest = self._sieve.close() if self._sieve else b""
        self._close()
        return rest

    def left(self) -> None:
        """The client lets go of the answer, read to its end or not."""
        ended = self._seen & (Seen.END | Seen.FINISH)
        self._ending.complete = self._ending.complete or bool(ended) or self._is_refused
        self._ending.client_gone = not self._ending.complete
        self._close()

    def failed(self, error: BaseException) -> None:
        """The client raised `error`, which goes on its way."""
        if isinstance(error, GeneratorExit):
            self.left()
            return
        status = getattr(error, "status", None)
        if type(status) is int and status >= CLIENT_FAULT.start:  # it is what the engine said
            self._ending.status, self._ending.complete = status, True
            self.call.attributes[s.HTTP_STATUS] = status
        self._ending.exception = error
        self._close()

    @contained
    def _close(self) -> None:
        if self._over:
            return
        self._over = True
        if self._is_refused and self._number < self.call.attempts:
            return  # another attempt has taken its place
        if self._detector is not None:
            self._saw(self._detector.close(), self._now())
        facts = self._facts()
        if facts is not None and not self.call.timeline.closed:
            said.take(self.call, facts, streamed=self._detector is not None)
            self._tell_first_chunk()
        self._conclude(facts)
        self._return()
        # What is read from now on, the client has kept: it was watched when it came.
        self._sieve = self._detector = self._json = None

    def _return(self) -> None:
        """The call ends here; a refusal does so with its head, and once more with its body."""
        if self._owned and not self.call.timeline.closed:
            self.call.returned = 0
            self.call.end()

    def _facts(self) -> StreamFacts | None:
        """What the answer said of itself, in a stream or in one JSON document."""
        if self._detector is not None:
            return self._detector.facts
        document = self._json.document() if self._json is not None else None
        return None if document is None else facts_of(document)

    def _tell_first_chunk(self) -> None:
        if self._detector is not None and self._first_chunk:
            elapsed = (self._first_chunk - self._sent) / 1e9
            self.call.attributes[s.RESPONSE_TIME_TO_FIRST_CHUNK] = elapsed

    def _conclude(self, facts: StreamFacts | None) -> None:
        """How it ended, on the call and on its span."""
        ending, call = self._ending, self.call
        ending.complete = ending.complete or self._is_refused
        if facts is not None:
            ending.finish_reasons = facts.finish_reasons
            if self._seen & Seen.ERROR or ending.status in SUCCESS:
                ending.stream_error = facts.error_type
        ending.unterminated = self._ends and is_unfinished(self._seen)
        outcome, kind = decide(ending)
        call.attributes[s.UPSTREAM_OUTCOME] = outcome
        call.error_type = kind
