"""One HTTP exchange, watched: messages pass unchanged, at once, in order, and leave stamps.

The request is read here, the response in `reply`. Our own faults are contained; the app's and the
server's pass untouched.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from llm_trace import context
from llm_trace import semconv as s
from llm_trace.asgi import servers
from llm_trace.asgi.body import BodyCopy, model_of, request_facts
from llm_trace.asgi.content import ContentCopy
from llm_trace.asgi.edge import edge_of
from llm_trace.asgi.reply import Reply
from llm_trace.asgi.routes import Routes, template
from llm_trace.asgi.sse import Seen
from llm_trace.asgi.telling import Telling, asks
from llm_trace.asgi.types import ASGIApp, Message, Receive, Scope, Send
from llm_trace.core import faults
from llm_trace.core.dispatch import Dispatch
from llm_trace.core.freeze import Answer, freeze
from llm_trace.core.outcome import Ending
from llm_trace.core.record import HttpFacts
from llm_trace.core.timeline import Timeline
from llm_trace.settings import Settings

MARK: Final = "llm_trace"
"""The scope key of the request's timeline: while it runs, an inner copy of us steps aside."""


class Exchange:
    """The state of one request between the server and the app."""

    __slots__ = (
        "_content",
        "_dispatch",
        "_enclosing",
        "_exception",
        "_model",
        "_operation",
        "_receive",
        "_reply",
        "_request",
        "_request_body",
        "_routes",
        "_scope",
        "_settings",
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
        self._scope = scope
        self._enclosing = servers.around(scope)
        self._receive = receive
        self._settings = settings
        self._dispatch = dispatch
        self._routes = routes
        self._operation = routes.operation(scope["path"])
        self._model: str | None = None
        self._request: Mapping[str, object] = {}
        self._request_body: BodyCopy | None = BodyCopy(settings.max_body_bytes)
        self._exception: BaseException | None = None
        self._content = self._content_copy(send, settings)
        send = self._content.send if self._content else send
        telling = Telling(send, timeline) if settings.ledger_in_band and asks(scope) else None
        self._reply = Reply(
            telling.send if telling else send,
            timeline,
            declared=self._operation is not None,
            limit=settings.max_body_bytes,
            over=self._answered,
        )
        if telling is not None:
            telling.settle = self._reply.settle

    def _content_copy(self, send: Send, settings: Settings) -> ContentCopy | None:
        """Who keeps what is said, where that is wanted and a span is there to hold it."""
        identity = self.timeline.identity
        if not settings.capture_content or identity is None or not identity.sampled:
            return None
        return ContentCopy(send, read=settings.max_body_bytes, limit=settings.max_content_bytes)

    async def run(self, app: ASGIApp) -> None:
        """Run `app` with its messages watched; what it raises is recorded and raised again."""
        timeline = self.timeline
        token = context.enter(timeline)
        active = timeline.activate()
        self._dispatch.live.add(timeline)
        try:
            await app(self._scope, self.receive, self._reply.send)
        except BaseException as error:
            self._exception = error
            raise
        finally:
            self._finish(timeline.clock.monotonic_ns(), complete=False)
            with suppress(ValueError):  # a task that is torn down may end in another context
                context.leave(token)
            timeline.deactivate(active)
            self._release()

    def _release(self) -> None:
        """Leave nothing that refers to itself: see `Reply.release`."""
        self._exception = None
        self._reply.release()
        self.timeline.calls = []

    async def receive(self) -> Message:
        """The server's next message, for the app; we never ask for one ourselves."""
        message = await self._receive()
        try:
            self._received(message)
        except Exception as error:  # noqa: BLE001 - rule 1: never hurt the host
            faults.contain("receive", error)
        return message

    def _received(self, message: Message) -> None:
        self._note_inner_server()
        if message["type"] == "http.disconnect":
            if not self.timeline.closed:
                self._reply.client_left()
        elif self._request_body is not None:
            self._request_body.feed(message.get("body", b""))
            if not message.get("more_body", False):
                self.timeline.body_complete = self.timeline.clock.monotonic_ns()
                self._read_request(self._request_body)
                self._request_body = None

    def _read_request(self, body: BodyCopy) -> None:
        document = body.document()
        if document is not None:
            self._model = model_of(document)
            self._request = request_facts(document)
            self.timeline.streams = bool(self._request.get(s.REQUEST_STREAM))
            if self._content is not None:
                self._content.asked(document)

    def _answered(self, now: int) -> None:
        """The last byte was sent: what the app does from here on is no part of the request."""
        self._finish(now, complete=not self._reply.client_gone)

    def _finish(self, now: int, *, complete: bool) -> None:
        if self.timeline.closed:
            return
        self._dispatch.live.discard(self.timeline)
        try:
            self._note_inner_server()
            self._reply.close(now)
            if not self.timeline.first_token_sent:
                self.timeline.waited_until(now)
            record = freeze(self.timeline, self._answer(complete=complete), now)
            if record is not None:
                self._dispatch.deliver(record)
        except Exception as error:  # noqa: BLE001 - rule 1: never hurt the host
            faults.contain("finish", error)
        finally:
            self.timeline.closed = True

    def _note_inner_server(self) -> None:
        """A layer inside us made the server's span of this request: ours stands above it."""
        identity = self.timeline.identity
        if identity is None or not identity.owns_server_span:
            return
        if servers.around(self._scope) > self._enclosing:
            self.timeline.identity = replace(identity, owns_server_span=False)

    def _answer(self, *, complete: bool) -> Answer:
        reply = self._reply
        operation = self._operation
        if (
            operation is None
            and reply.seen & Seen.TOKEN
            and not self._routes.is_replay(self._scope)
        ):
            operation = "chat"
        usage, response = reply.said()
        return Answer(
            ending=self._ending(response, complete=complete),
            http=self._http(),
            operation=operation,
            model=self._model or response.get(s.RESPONSE_MODEL),
            provider=self._settings.provider,
            streamed=reply.streamed or (reply.hidden and bool(self._request.get(s.REQUEST_STREAM))),
            tokens_observable=not reply.hidden,
            usage=usage,
            request=self._request,
            response=response,
            content=self._content.attributes() if self._content is not None else {},
            gaps=reply.gaps,
            edge=self._edge(),
            cached_share=self._settings.cached_share,
        )

    def _edge(self) -> int | None:
        timeline = self.timeline
        most = round(self._settings.max_edge_seconds * 1e9)
        return edge_of(timeline.carrier, timeline.received + timeline.wall_offset, most)

    def _ending(self, response: Mapping[str, Any], *, complete: bool) -> Ending:
        reply = self._reply
        return Ending(
            status=reply.status,
            complete=complete,
            client_gone=reply.client_gone,
            exception=self._exception,
            stream_error=reply.stream_error,
            stream_status=reply.stream_status,
            unterminated=reply.unterminated,
            finish_reasons=response.get(s.RESPONSE_FINISH_REASONS) or (),
        )

    def _http(self) -> HttpFacts:
        scope = self._scope
        return HttpFacts(
            method=scope["method"],
            path=scope["path"],
            route=template(scope),
            scheme=scope.get("scheme", "http"),
            server=scope.get("server"),
            status=self._reply.status,
        )


def rewrite_headers(scope: Scope, timeline: Timeline) -> None:
    """Make the request's own trace headers name our span, so that inner spans are our children.

    In every format that is read here: an inner layer may read any of them first.
    """
    if timeline.identity is None:
        return
    formats = timeline.tracer.formats()
    kept = [pair for pair in scope["headers"] if pair[0] not in formats]
    for name, value in timeline.headers().items():
        kept.append((name.encode("latin-1"), value.encode("latin-1")))
    scope["headers"] = kept
