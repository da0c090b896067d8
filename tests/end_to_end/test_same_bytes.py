"""Byte for byte: real servers and clients cannot tell whether llm_trace is there."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from threaded_servers import Hypercorn, Uvicorn
from zoo import TOKEN, Witness, zoo

import llm_trace
from llm_trace.setup import composition

STREAM = b'{"model": "m", "stream": true, "n": %d}'
CHAT = "/v1/chat/completions"
JSON = [("content-type", "application/json")]
PARENT = [("traceparent", f"00-{'a' * 32}-{'b' * 16}-01"), ("tracestate", "v=1")]

REQUESTS = {
    "plain": ("GET", "/plain", [], b""),
    "head": ("HEAD", "/plain", [], b""),
    "with a parent": ("POST", "/echo", PARENT, b"x"),
    "no content": ("GET", "/empty", [], b""),
    "not modified": ("GET", "/unmodified", [], b""),
    "redirect": ("GET", "/redirect", [], b""),
    "not found": ("GET", "/none", [], b""),
    "wrong method": ("DELETE", "/plain", [], b""),
    "header order": ("GET", "/cookies", [], b""),
    "crash": ("GET", "/crash", [], b""),
    "crash mid-stream": ("GET", "/late-crash", [], b""),
    "json lines": ("GET", "/lines", [], b""),
    "file": ("GET", "/file", [], b""),
    "part of a file": ("GET", "/file", [("range", "bytes=2-9")], b""),
    "background": ("GET", "/background", [], b""),
    "body is never read": ("POST", "/refused", [], b"secret"),
    "continue is never asked for": ("POST", "/refused", [("expect", "100-continue")], b"x"),
    "continue": ("POST", "/echo", [("expect", "100-continue")], b"x"),
    "echo": ("POST", "/echo", [], b"y" * 1000),
    "chunked upload": ("POST", "/echo", [("transfer-encoding", "chunked")], b"z" * 50),
    "chat": ("POST", CHAT, JSON, b'{"model": "m"}'),
    "stream": ("POST", CHAT, JSON, STREAM % 5),
    "stream without a token": ("POST", CHAT, JSON, STREAM % 0),
    "no json": ("POST", CHAT, JSON, b"\xff{"),
    "large": ("GET", "/big", [], b""),
    "trailers": ("GET", "/trailed/", [("te", "trailers")], b""),
    "empty parts": ("GET", "/parts/", [], b""),
    "abandoned": ("GET", "/abandoned/", [], b""),
    "metrics path of another": ("GET", "/metrics/x", [], b""),
    "wrapped stream": ("POST", f"/wrapped{CHAT}", JSON, STREAM % 5),
    "wrapped and compressed": ("GET", "/wrapped/lines", [("accept-encoding", "gzip")], b""),
    "wrapped crash": ("GET", "/wrapped/crash", [], b""),
    "wrapped crash mid-stream": ("GET", "/wrapped/late-crash", [], b""),
    "preflight": (
        "OPTIONS",
        f"/wrapped{CHAT}",
        [("origin", "http://a"), ("access-control-request-method", "POST")],
        b"",
    ),
    "cross origin": ("GET", "/wrapped/plain", [("origin", "http://a")], b""),
}
HELD = ("GET", "/held/", [], b"")
LONG = ("POST", CHAT, JSON, STREAM % 20_000)

SERVERS = {
    "uvicorn h11": lambda app: Uvicorn(app, "h11"),
    "uvicorn httptools": lambda app: Uvicorn(app, "httptools"),
    "hypercorn HTTP/2": Hypercorn,
}

_numbers = count()


class Pair:
    """The same app on two servers of one kind: by itself, and traced."""

    def __init__(self, make):
        self.witnesses = [Witness(zoo()), Witness(llm_trace.instrument(zoo(), metrics_path=""))]
        self.servers = [make(witness) for witness in self.witnesses]

    def survives(self, request):
        """Whether the server by itself ends such a request whose client leaves.

        hypercorn 0.18 now and then never does: a `send` waits for the stream that was reset. Only
        who listens for the departure meanwhile, as Starlette's streams do, gets out of it.
        """
        _, path, _, body = request
        listens = path == HELD[1] or (path == CHAT and b'"stream": true' in body)
        return listens or not isinstance(self.servers[0], Hypercorn)

    def ask(self, request, leave_after=None):
        """What came of a request: for each server what the client got and what the server saw."""
        name = str(next(_numbers))
        got = [server.ask(name, request, leave_after) for server in self.servers]
        return list(zip(got, [witness.log(name) for witness in self.witnesses], strict=True))

    def stop(self):
        """End both."""
        for server in self.servers:
            server.stop()


@pytest.fixture(scope="module")
def traced():
    """A provider, so that requests have ids and headers are rewritten."""
    provider = TracerProvider()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace, "get_tracer_provider", lambda: provider)
        patch.setattr(composition, "_dispatches", {})
        yield


@pytest.fixture(scope="module", params=SERVERS)
def pair(request, traced):
    """Both servers of one kind."""
    both = Pair(SERVERS[request.param])
    yield both
    both.stop()


@pytest.mark.parametrize("kind", REQUESTS)
def test_an_answer_is_the_same_byte_for_byte(kind, pair):
    """Status, headers in order, bytes, trailers, and each call of `receive` and `send` in order."""
    bare, traced = pair.ask(REQUESTS[kind])

    assert bare == traced
    assert "ends" in bare[1]


def course(log):
    """What was sent, in order and once each, whether the departure was told, and the end.

    How many chunks go out before a departure is noticed is the network's doing, not the app's.
    """
    sent = dict.fromkeys(repr(entry) for entry in log if entry[0] == "sends")
    return list(sent), log.count(("gets", "http.disconnect")), log[-2:]


QUICK = settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@QUICK
@given(leave_after=st.integers(0, 2 * len(TOKEN)))
def test_a_client_that_leaves_while_the_app_waits_is_seen_at_the_same_moment(pair, leave_after):
    """The one disconnect reaches the app, at the same call of `receive`."""
    bare, traced = pair.ask(HELD, leave_after)

    assert bare == traced
    assert ("gets", "http.disconnect") in bare[1]


@QUICK
@given(leave_after=st.integers(1, 1000), wrapped=st.booleans())
def test_a_client_that_leaves_mid_stream_ends_it_the_same_way(pair, leave_after, wrapped):
    """The stream ends early, by the same calls, and what came until then is the same."""
    method, path, *rest = LONG
    request = (method, f"/wrapped{path}" if wrapped else path, *rest)
    assume(pair.survives(request))

    bare, traced = pair.ask(request, leave_after)

    assert bare[0] == traced[0]
    assert course(bare[1]) == course(traced[1])


@QUICK
@given(kinds=st.lists(st.sampled_from(sorted(REQUESTS)), min_size=1, max_size=4), data=st.data())
def test_any_order_of_requests_and_departures_is_answered_the_same(pair, kinds, data):
    """Whoever came and left before, each answer is what it is without us."""
    for kind in kinds:
        departures = st.one_of(st.none(), st.integers(0, 300))
        leave_after = data.draw(departures) if pair.survives(REQUESTS[kind]) else None
        (bare, _), (traced, _) = pair.ask(REQUESTS[kind], leave_after)
        assert bare == traced
