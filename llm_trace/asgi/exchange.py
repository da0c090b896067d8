"""One HTTP exchange, watched: messages pass unchanged, at once, in order, and leave stamps.

What happens to a chunk after the first token is in `chunks`, the hot path; the rest is here. Our
own faults are contained; the app's and the server's pass untouched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from llm_trace import context
from llm_trace import semconv as s
from llm_trace.asgi.answer import facts_of
from llm_trace.asgi.body import BodyCopy, model_of, request_facts
from llm_trace.asgi.chunks import watched
from llm_trace.asgi.gaps import GapCounter
from llm_trace.asgi.routes import Routes, template
from llm_trace.asgi.sse import Seen, StreamFacts, TokenDetector, framing_of
from llm_trace.asgi.types import ASGIApp, Message, Receive, Scope, Send
from llm_trace.core import faults
from llm_trace.core.dispatch import Dispatch
from llm_trace.core.freeze import Answer, freeze
from llm_trace.core.outcome import Ending
from llm_trace.core.record import HttpFacts
from llm_trace.core.timeline import PROPAGATED, Timeline
from llm_trace.core.usage import Usage
from llm_trace.settings import Settings

MARK: Final = "llm_trace"
"""The scope key of the request's timeline: an inner copy of the middleware steps aside."""

_TERMINATED: Final = Seen.FINISH | Seen.END | Seen.ERROR
_GENERATED: Final = Seen.TOKEN | Seen.ROLE


class Exchange:
    """The state of one request between the server and the app."""

    __slots__ = (
        "_arm",
        "_bits",
        "_client_gone",
        "_detector",
        "_dispatch",
        "_exception",
        "_feed",
        "_first_byte",
        "_gaps",
        "_hidden",
        "_is_text",
        "_json",
        "_model",
        "_now",
        "_operation",
        "_receive",
        "_request",
        "_request_body",
        "_routes",
        "_scope",
        "_settings",
        "_settle",
        "_status",
        "_trailers",
        "_watch",
        "send",
        "timeline",
    )

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        *,
        settings: Settings,
        routes: Routes,
        dispatch: Dispatch,
        timeline: Timeline,
    ) -> None:
        self.timeline = timeline
        self._now = timeline.clock.monotonic_ns
        self._scope = scope
        self._receive = receive
        self._settings = settings
        self._routes = routes
        self._dispatch = dispatch
        self._operation = routes.operation(scope["path"])
        self._model: str | None = None
        self._request: Mapping[str, object] = {}
        self._request_body: BodyCopy | None = BodyCopy(settings.max_body_bytes)
        self._json: BodyCopy | None = None
        self._detector: TokenDetector | None = None
        self._bits = self._status = self._first_byte = 0
        self._client_gone = self._hidden = self._trailers = self._is_text = False
        self._exception: BaseException | None = None
        self._watch: Callable[[Message, int], None] = self._unstarted
        self._gaps = GapCounter()
        self.send, self._arm, self._settle = watched(send, self._now, self, self._gaps)

    async def run(self, app: ASGIApp) -> None:
        """Run `app` with its messages watched; what it raises is recorded and raised again."""
        token = context.enter(self.timeline)
        active = self.timeline.activate()
        self._dispatch.live.add(self.timeline)
        try:
            await app(self._scope, self.receive, self.send)
        except BaseException as error:
            self._exception = error
            raise
        finally:
            self._finish(self._now(), complete=False)
            with suppress(ValueError):  # a task that is torn down may end in another context
                context.leave(token)
            self.timeline.deactivate(active)

    async def receive(self) -> Message:
        """The server's next message, for the app; we never ask for one ourselves."""
        message = await self._receive()
        try:
            self._received(message)
        except Exception as error:  # noqa: BLE001 - rule 1: never hurt the host
            faults.contain("receive", error)
        return message

    def watch(self, message: Message, now: int) -> None:
        """A message was sent at `now`, before the first token."""
        self._watch(message, now)

    def unusual(self, message: Message, now: int, seen: int) -> None:
        """A message after the first token that is not one more token of the same kind."""
        self._saw(seen, now)
        self._look_for_end(message, now)

    def client_left(self) -> None:
        """The server says that nobody listens any more."""
        self._client_gone = True

    def _received(self, message: Message) -> None:
        if message["type"] == "http.disconnect":
            self._client_gone = self._client_gone or not self.timeline.closed
        elif self._request_body is not None:
            self._request_body.feed(message.get("body", b""))
            if not message.get("more_body", False):
                self.timeline.body_complete = self._now()
                self._read_request(self._request_body)
                self._request_body = None

    def _read_request(self, body: BodyCopy) -> None:
        document = body.document()
        if document is not None:
            self._model = model_of(document)
            self._request = request_facts(document)

    # --- the response, by the state that it is in ---------------------------------------------

    def _unstarted(self, message: Message, _now: int) -> None:
        """Before `http.response.start`."""
        if message["type"] != "http.response.start":
            return
        self._status = message["status"]
        self._trailers = message.get("trailers", False)
        headers = {name.lower(): value for name, value in message.get("headers", ())}
        content_type = headers.get(b"content-type", b"").decode("latin-1")
        self._hidden = headers.get(b"content-encoding", b"identity") != b"identity"
        self._choose_watch(content_type)

    def _choose_watch(self, content_type: str) -> None:
        framing = framing_of(content_type)
        self._watch = self._plain_body
        if framing == "text" and not (self._operation or self.timeline.calls):
            self._watch = self._undeclared  # any text is a token only in a generation
            return
        if framing is not None and not self._hidden:
            self._is_text = framing == "text"
            self._detector = TokenDetector(framing)
            self._feed: Callable[[bytes], int] = self._detector.feed
            self._watch = self._stream_body
        elif framing is None and "json" in content_type and not self._hidden:
            self._json = BodyCopy(self._settings.max_body_bytes)

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
        if body:
            self._first_byte = self._first_byte or now
            if self._json is not None:
                self._json.feed(body)
        self._look_for_end(message, now)

    def _stream_body(self, message: Message, now: int) -> None:
        """A stream before its first token."""
        body = message.get("body", b"")
        if body:
            self._first_byte = self._first_byte or now
            self._saw(self._feed(body), now)
        self._look_for_end(message, now)

    def _saw(self, seen: int, now: int) -> None:
        self._bits |= seen
        if not seen & Seen.TOKEN:
            return
        timeline = self.timeline
        if timeline.first_token_sent:
            self._gaps.add(now - timeline.last_token_sent)
        else:
            timeline.first_token_sent = now
        if seen & Seen.ANSWER:
            timeline.first_answer_sent = timeline.first_answer_sent or now
        timeline.last_token_sent = now
        if self._detector is not None:
            self._arm(self._detector, seen)

    def _look_for_end(self, message: Message, now: int) -> None:
        kind = message["type"]
        if kind == "http.response.body":
            over = not message.get("more_body", False) and not self._trailers
        elif kind == "http.response.trailers":
            over = not message.get("more_trailers", False)
        else:
            over = kind == "http.response.pathsend"
        if over:
            self._finish(now, complete=not self._client_gone)

    # --- the end, once ------------------------------------------------------------------------

    def _finish(self, now: int, *, complete: bool) -> None:
        if self.timeline.closed:
            return
        self._settle()
        self._dispatch.live.discard(self.timeline)
        try:
            record = freeze(self.timeline, self._answer(now, complete=complete), now)
            if record is not None:
                self._dispatch.deliver(record)
        except Exception as error:  # noqa: BLE001 - rule 1: never hurt the host
            faults.contain("finish", error)
        finally:
            self.timeline.closed = True

    def _answer(self, now: int, *, complete: bool) -> Answer:
        detector = self._detector
        if detector is not None:
            self._saw(detector.close(), now)
        streamed = detector is not None or (
            self._hidden and bool(self._request.get(s.REQUEST_STREAM))
        )
        timeline = self.timeline
        operation = self._operation
        if operation is None and self._bits & Seen.TOKEN:
            operation = "chat"
        usage, response = self._response()
        return Answer(
            ending=self._ending(complete=complete),
            http=self._http(),
            operation=operation,
            model=self._model,
            provider=self._settings.provider,
            streamed=streamed,
            tokens_observable=not self._hidden,
            usage=usage,
            request=self._request,
            response=response,
            gaps=self._gaps.freeze(timeline.last_token_sent - timeline.first_token_sent),
            cached_share=self._settings.cached_share,
        )

    def _ending(self, *, complete: bool) -> Ending:
        detector = self._detector
        error = detector.facts.error_type if detector and self._bits & Seen.ERROR else None
        return Ending(
            status=self._status,
            complete=complete,
            client_gone=self._client_gone,
            exception=self._exception,
            stream_error=error,
            unterminated=bool(self._bits & _GENERATED and not self._bits & _TERMINATED)
            and not self._is_text,
        )

    def _response(self) -> tuple[Usage, dict[str, object]]:
        facts = self._facts()
        if facts is None:
            return Usage(), {}
        response: dict[str, object] = {
            s.RESPONSE_ID: facts.response_id,
            s.RESPONSE_MODEL: facts.response_model,
            s.RESPONSE_FINISH_REASONS: tuple(facts.finish_reasons) or None,
        }
        if self._detector is not None and self._first_byte:
            elapsed = self._first_byte - self.timeline.received
            response[s.RESPONSE_TIME_TO_FIRST_CHUNK] = elapsed / 1e9
        return facts.usage or Usage(), response

    def _facts(self) -> StreamFacts | None:
        """What the answer said of itself, in a stream or in one JSON document."""
        if self._detector is not None:
            return self._detector.facts
        document = self._json.document() if self._json is not None else None
        return None if document is None else facts_of(document)

    def _http(self) -> HttpFacts:
        scope = self._scope
        return HttpFacts(
            method=scope["method"],
            path=scope["path"],
            route=template(scope),
            scheme=scope.get("scheme", "http"),
            server=scope.get("server"),
            status=self._status,
        )


def rewrite_headers(scope: Scope, timeline: Timeline) -> None:
    """Make the request's own trace headers name our span, so that inner spans are our children."""
    if timeline.identity is None:
        return
    kept = [pair for pair in scope["headers"] if pair[0] not in PROPAGATED]
    for name, value in timeline.headers().items():
        kept.append((name.encode("latin-1"), value.encode("latin-1")))
    scope["headers"] = kept


def state_of(scope: Scope) -> Any:
    """The timeline of this scope's request, or None before the middleware saw it."""
    return scope.get(MARK)
