"""The app's voice: phases, calls and facts said from inside a request, wherever the code runs."""

import asyncio
import functools
import logging
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from contextvars import Context, ContextVar, copy_context
from uuid import UUID

import pytest

import llm_trace
from llm_trace import context, semconv
from llm_trace.core import faults
from llm_trace.core.identity import TraceIdentity
from llm_trace.core.pseudonym import pseudonym
from llm_trace.core.timeline import NO_REQUEST, Timeline
from llm_trace.core.tracer import NoTracer
from llm_trace.settings import Settings
from llm_trace.testing import START, FakeClock

TRACE = 0xABC
ROOT = 7
INBOUND = ((b"traceparent", b"00-0000000000000000000000000000000a-000000000000000b-01"),)

_span: ContextVar[int] = ContextVar("span", default=0)


class StrictTracer(NoTracer):
    """Makes spans current as OpenTelemetry does, and keeps how often each was undone."""

    def __init__(self):
        self.activated = []
        self.deactivated = 0

    def begin(self, headers, name):
        """Not asked for here."""
        raise NotImplementedError

    def activate(self, identity, span_id=0):
        """Make the span current."""
        self.activated.append((identity.trace_id, span_id))
        return _span.set(span_id)

    def deactivate(self, token):
        """Undo it, where it can be undone."""
        self.deactivated += 1
        if token is not None:
            context._reset(token)


class Request:
    """One live request, current inside `with`."""

    def __init__(self, clock, first_span=101, *, traced=True):
        self.tracer = StrictTracer()
        self.timeline = Timeline(
            clock.clock, INBOUND, self.tracer, iter(range(first_span, first_span + 99)).__next__
        )
        if traced:
            self.timeline.identity = TraceIdentity(TRACE, ROOT)

    def __enter__(self):
        self._token = context.enter(self.timeline)
        return self

    def __exit__(self, *_error):
        context.leave(self._token)

    @property
    def rows(self):
        """The intervals: name, start, end, span, parent, error."""
        return [
            (
                *(i.phase, i.start - START, i.end and i.end - START),
                *(i.span_id, i.parent_span_id, i.error_type),
            )
            for i in self.timeline.intervals
        ]


@pytest.fixture
def clock():
    """Time, standing still."""
    return FakeClock()


@pytest.fixture
def request_(clock):
    """The current request."""
    with Request(clock) as request:
        yield request


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Counters of a new process."""
    monkeypatch.setattr(faults, "dropped", Counter())
    monkeypatch.setattr(faults, "internal", Counter())


def traceparent(span_id):
    """The headers that name a span of the current request."""
    return {"traceparent": f"00-{TRACE:032x}-{span_id:016x}-01"}


# --- phases -----------------------------------------------------------------------------------


def test_a_phase_is_a_context_manager(clock, request_):
    """`with` times its block and gives the phase, to add attributes to."""
    clock.advance(1)
    with context.phase("rerank", top=3) as phase:
        clock.advance(4)
        phase.set(kept=2, top=4)

    expected = ([("rerank", 1, 5, 101, 0, None)], {"top": 4, "kept": 2})
    assert expected == (request_.rows, request_.timeline.intervals[0].attributes)
    assert ([(TRACE, 101)], 1) == (request_.tracer.activated, request_.tracer.deactivated)


def test_a_phase_is_an_async_context_manager(clock, request_):
    """`async with` is the same."""

    async def app():
        async with context.phase("rerank"):
            clock.advance(4)

    asyncio.run(app())

    assert [("rerank", 0, 4, 101, 0, None)] == request_.rows


def test_a_phase_decorates_a_function(clock, request_):
    """Every run is a stretch of its own; the function stays itself."""

    @context.phase("rerank")
    def work(ns, *, result):
        """Take `ns`."""
        clock.advance(ns)
        return result

    results = [work(2, result="a"), work(3, result="b")]

    assert ["a", "b"] == results
    assert ("work", "Take `ns`.") == (work.__name__, work.__doc__)
    assert [("rerank", 0, 2, 101, 0, None), ("rerank", 2, 5, 102, 0, None)] == request_.rows


def test_a_phase_decorates_a_coroutine(clock, request_):
    """The phase lasts until the coroutine is done, not until it is made."""

    @context.phase("rerank")
    async def work(ns):
        await asyncio.sleep(0)
        clock.advance(ns)
        return ns

    async def app():
        made = work(3)
        clock.advance(10)
        return await made

    assert 3 == asyncio.run(app())
    assert asyncio.iscoroutinefunction(work)
    assert [("rerank", 10, 13, 101, 0, None)] == request_.rows


def test_a_phase_decorates_a_generator(clock, request_):
    """The phase lasts from the first step to the last; what is sent and returned goes through."""

    @context.phase("rerank")
    def work():
        clock.advance(1)
        got = yield "a"
        clock.advance(1)
        with pytest.raises(KeyError):
            yield got
        return "done"

    items = work()
    clock.advance(10)
    seen = [next(items), items.send("b")]
    with pytest.raises(StopIteration) as stop:
        items.throw(KeyError())

    assert (["a", "b"], "done") == (seen, stop.value.value)
    assert [("rerank", 10, 12, 101, 0, None)] == request_.rows


def test_a_phase_decorates_an_async_generator(clock, request_):
    """The same for an async generator, to its very end."""

    @context.phase("rerank")
    async def work():
        for item in "ab":
            clock.advance(1)
            yield item

    async def app():
        return [item async for item in work()]

    assert ["a", "b"] == asyncio.run(app())
    assert [("rerank", 0, 2, 101, 0, None)] == request_.rows


def test_what_is_sent_and_thrown_reaches_a_decorated_async_generator(request_):
    """A dependency that rolls back on an error still sees that error, not just its own end."""
    events = []

    @context.phase("session")
    async def session():
        try:
            events.append((yield "open"))
            yield "used"
        except KeyError:
            events.append("rolled back")
            raise
        finally:
            events.append("closed")

    async def app():
        steps = session()
        events.extend([await steps.asend(None), await steps.asend("sent")])
        with pytest.raises(KeyError):
            await steps.athrow(KeyError())
        with pytest.raises(ValueError, match="mine"):
            async with asynccontextmanager(forgiving)():
                raise ValueError("mine")

    @context.phase("forgiving")
    async def forgiving():
        try:
            yield
        except ValueError:
            events.append("seen")
            raise

    asyncio.run(app())

    assert ["sent", "open", "used", "rolled back", "closed", "seen"] == events
    assert [("session", "KeyError"), ("forgiving", "ValueError")] == [
        (i.phase, i.error_type) for i in request_.timeline.intervals
    ]


def test_a_decorated_async_generator_may_handle_what_is_thrown_at_it(request_):
    """It may go on after an error, as if nothing stood between it and its caller."""

    @context.phase("rerank")
    async def work():
        try:
            yield "before"
        except KeyError:
            yield "after"

    async def app():
        steps = work()
        return [await anext(steps), await steps.athrow(KeyError()), [i async for i in steps]]

    assert ["before", "after", []] == asyncio.run(app())
    assert [("rerank", 0, 0, 101, 0, None)] == request_.rows


def test_nested_phases_are_children_of_each_other(clock, request_):
    """A phase inside a phase has its span as parent; after it the outer one is current again."""
    with context.phase("agent"):
        with context.retrieval():
            clock.advance(1)
        with context.phase("rerank"):
            clock.advance(1)
    with context.phase("check"):
        clock.advance(1)

    expected = [
        ("agent", 0, 2, 101, 0, None),
        ("retrieval", 0, 1, 102, 101, None),
        ("rerank", 1, 2, 103, 101, None),
        ("check", 2, 3, 104, 0, None),
    ]
    assert expected == request_.rows


def test_parallel_tasks_have_the_same_parent(clock, request_):
    """Retrievals gathered inside a phase are siblings, and each keeps its own end."""

    async def fetch(name, turns):
        with context.retrieval(name):
            for _ in range(turns):
                await asyncio.sleep(0)
                clock.advance(1)

    async def app():
        with context.phase("agent"):
            await asyncio.gather(fetch("a", 1), fetch("b", 2))

    asyncio.run(app())

    expected = [
        ("agent", 0, 3, 101, 0, None),
        ("retrieval", 0, 1, 102, 101, None),
        ("retrieval", 0, 3, 103, 101, None),
    ]
    assert expected == request_.rows


def test_a_phase_object_may_be_entered_again(clock, request_):
    """One object, entered inside itself and once more: three stretches, rightly nested."""
    phase = context.phase("rerank", fixed=1)
    with phase:
        phase.set(outer=1)
        clock.advance(1)
        with phase:
            clock.advance(1)
        clock.advance(1)
    with phase:
        clock.advance(1)

    expected = [
        ("rerank", 0, 3, 101, 0, None),
        ("rerank", 1, 2, 102, 101, None),
        ("rerank", 3, 4, 103, 0, None),
    ]
    assert expected == request_.rows
    assert [{"fixed": 1, "outer": 1}, {"fixed": 1}, {"fixed": 1}] == [
        i.attributes for i in request_.timeline.intervals
    ]


def test_a_phase_object_may_be_shared_by_requests(clock):
    """Two requests in the same phase object at once each end their own stretch."""
    shared = context.phase("rerank")
    requests = [Request(clock, 101), Request(clock, 201)]

    async def serve(request, turns):
        with request, shared:
            for _ in range(turns):
                await asyncio.sleep(0)
                clock.advance(1)

    async def server():
        await asyncio.gather(serve(requests[0], 1), serve(requests[1], 3))

    asyncio.run(server())

    expected = [[("rerank", 0, 1, 101, 0, None)], [("rerank", 0, 4, 201, 0, None)]]
    assert expected == [request.rows for request in requests]


def test_an_exit_without_an_entry_does_nothing(request_):
    """A phase that was never entered has nothing to end."""
    context.phase("rerank").__exit__(None, None, None)

    assert [] == request_.rows


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("secret"), "ValueError"),
        (asyncio.CancelledError(), None),
        (SystemExit(3), "SystemExit"),
        (GeneratorExit(), None),
    ],
)
def test_an_exception_in_a_phase_is_noted_and_goes_on_unchanged(clock, request_, error, kind):
    """The phase ends with the error's class; being told to stop is no error."""
    clock.advance(2)
    with pytest.raises(type(error)) as caught, context.phase("rerank"):
        raise error

    assert error is caught.value
    assert [("rerank", 2, 2, 101, 0, kind)] == request_.rows


def test_a_stream_that_is_closed_early_is_no_error(clock, request_):
    """A client that leaves closes the generator: its phase ends there, without an error."""

    @context.phase("rerank")
    def stream():
        while True:
            clock.advance(1)
            yield

    @context.phase("agent")
    async def astream():
        while True:
            clock.advance(1)
            yield

    async def app():
        items = astream()
        await anext(items)
        await items.aclose()

    items = stream()
    next(items)
    items.close()
    asyncio.run(app())

    expected = [("rerank", 0, 1, 101, 0, None), ("agent", 1, 2, 102, 0, None)]
    assert expected == request_.rows


def test_a_phase_closed_in_another_task_ends_once_and_logs_nothing(clock, request_, caplog):
    """Field report 17: a generator begun in one task and closed in another is ordinary."""
    caplog.set_level(logging.DEBUG)

    @context.phase("rerank")
    async def stream():
        while True:
            clock.advance(1)
            yield

    async def server():
        items = stream()
        await asyncio.create_task(anext(items))
        clock.advance(1)
        await asyncio.create_task(items.aclose())
        clock.advance(1)
        await items.aclose()

    asyncio.run(server())

    assert [("rerank", 0, 2, 101, 0, None)] == request_.rows
    assert [] == [r for r in caplog.records if r.name != "asyncio"]
    assert ([(TRACE, 101)], 1) == (request_.tracer.activated, request_.tracer.deactivated)


def test_a_phase_dropped_in_an_unrelated_context_ends_once(clock, request_):
    """The garbage collector may close a generator from anywhere, even outside the request."""

    @context.phase("rerank")
    def stream():
        clock.advance(1)
        yield

    items = stream()
    copy_context().run(next, items)
    Context().run(items.close)

    assert [("rerank", 0, 1, 101, 0, None)] == request_.rows


# --- retrieval and names ----------------------------------------------------------------------


def test_a_retrieval_keeps_what_was_said_of_it(request_):
    """Facts that were not given are absent, not None."""
    with context.retrieval("wiki", top_k=5, tenant="t") as found:
        found.set(documents=3)
    with context.retrieval():
        pass

    expected = [{"data_source": "wiki", "top_k": 5, "tenant": "t", "documents": 3}, {}]
    assert expected == [i.attributes for i in request_.timeline.intervals]


RESERVED = sorted({*semconv.PHASES} - {semconv.RETRIEVAL, semconv.MODEL_LOAD})


@pytest.mark.parametrize("name", RESERVED)
def test_a_name_of_the_ledgers_own_is_refused_loudly_in_tests(name):
    """An app cannot claim time in the ledger's name; the message says what to do."""
    with pytest.raises(ValueError, match=f"'{name}' is measured by llm_trace itself: choose"):
        context.phase(name)


@pytest.mark.parametrize("name", RESERVED)
def test_a_name_of_the_ledgers_own_is_contained_in_production(clock, request_, name):
    """The block is still timed, as `other`, and the fault is counted."""
    with faults.production(), context.phase(name, k=1):
        clock.advance(1)

    assert [("other", 0, 1, 101, 0, None)] == request_.rows
    assert Counter(phase=1) == faults.internal


@pytest.mark.parametrize("name", [semconv.RETRIEVAL, semconv.MODEL_LOAD, "rerank", ""])
def test_other_names_may_be_used(request_, name):
    """The two kinds of interval that the ledger knows are open to apps, as is any name."""
    with context.phase(name):
        pass

    assert [(name, 0, 0, 101, 0, None)] == request_.rows


# --- threads ----------------------------------------------------------------------------------


def test_a_thread_started_by_asyncio_is_part_of_the_request(clock, request_):
    """`asyncio.to_thread` carries the request and the phase around it."""

    def work():
        with context.retrieval():
            clock.advance(1)

    async def app():
        with context.phase("agent"):
            await asyncio.to_thread(work)

    asyncio.run(app())

    expected = [("agent", 0, 1, 101, 0, None), ("retrieval", 0, 1, 102, 101, None)]
    assert expected == request_.rows


def test_bind_carries_the_request_into_a_pool(clock, request_):
    """A bound function may run in any thread, several times, and knows where it was bound."""

    def work(ns, *, result):
        """Take `ns`."""
        with context.retrieval():
            clock.advance(ns)
        return result

    with ThreadPoolExecutor(1) as pool:
        with context.phase("agent"):
            bound = context.bind(work)
        results = [pool.submit(bound, ns, result=ns).result() for ns in (1, 2)]
        pool.submit(work, 4, result=0).result()

    expected = [
        ("agent", 0, 0, 101, 0, None),
        ("retrieval", 0, 1, 102, 101, None),
        ("retrieval", 1, 3, 103, 101, None),
    ]
    assert ([1, 2], expected) == (results, request_.rows)
    assert ("work", "Take `ns`.") == (bound.__name__, bound.__doc__)


def test_a_bound_function_may_run_in_many_threads_at_once(request_):
    """Each run has a copy of the context: one context cannot be entered twice."""
    bound = context.bind(lambda again: again() if again else context.current())

    inner = bound(functools.partial(bound, None))

    assert request_.timeline is inner


# --- facts, calls and headers -----------------------------------------------------------------


def test_the_app_can_admit_and_annotate(clock, request_):
    """The last value of an attribute wins; the first admission does."""
    clock.advance(3)
    context.admitted()
    context.annotate(tier="free", tenant="t")
    context.annotate(tier="gold")

    expected = (START + 3, {"tier": "gold", "tenant": "t"})
    assert expected == (request_.timeline.admitted, request_.timeline.attributes)


def test_an_engine_call_hangs_on_the_phase_around_it(clock, request_):
    """A call is a child of its phase, and its headers name the call's own span."""
    with context.phase("agent"), context.engine_call("chat", "m", k=1) as call:
        clock.advance(2)
        headers = call.headers()

    frozen = call.freeze()
    assert traceparent(102) == headers
    assert ("chat", "m", 102, 101, START, START + 2, {"k": 1}) == (
        *(frozen.operation, frozen.model, frozen.span_id, frozen.parent_span_id),
        *(frozen.handed_off, frozen.returned, frozen.attributes),
    )
    assert [call] == request_.timeline.calls


def test_a_call_is_open_where_the_app_opened_it(request_):
    """Inside of it and nowhere else: what is sent to an engine there is that call."""
    assert context.open_call() is None

    with context.engine_call("chat", "m") as outer:
        assert context.open_call() is outer
        with context.engine_call("chat", "m") as inner:
            assert context.open_call() is inner
        assert context.open_call() is outer
        outer.end()
        assert context.open_call() is None


def test_a_call_is_open_until_an_async_with_ends_too(request_):
    """What the app sends after the inner one belongs to the outer one again."""

    async def nested():
        async with context.engine_call("chat", "m") as outer:
            async with context.engine_call("chat", "m"):
                pass
            assert context.open_call() is outer
        assert context.open_call() is None

    asyncio.run(nested())


def test_a_call_entered_within_itself_is_open_until_its_last_exit(request_):
    """Every entry is undone once; an exit too many does nothing."""
    call = context.engine_call("chat", "m")
    with context.engine_call("chat", "m") as outer:
        with call, call:
            assert context.open_call() is call
        assert context.open_call() is outer
        call.__exit__(None, None, None)
        assert context.open_call() is outer
    assert [outer, call] == request_.timeline.calls


def test_a_call_of_another_request_is_not_open_here(request_):
    """Work that inherits the context of one request and serves another opens its own."""
    with context.engine_call("chat", "m"):
        token = context.enter(Timeline())
        assert context.open_call() is None
        context.leave(token)


def test_an_exception_in_an_engine_call_goes_on_unchanged(request_):
    """The call notes the class of the error and lets it pass."""
    error = ConnectionError("secret")
    with pytest.raises(ConnectionError) as caught, context.engine_call("chat", "m"):
        raise error

    assert error is caught.value
    assert ["ConnectionError"] == [call.error_type for call in request_.timeline.calls]


def test_headers_name_the_phase_we_are_in_or_the_root(request_):
    """An upstream's spans become children of where the app is now."""
    outside = context.headers()
    with context.phase("agent"):
        inside = context.headers()

    assert [traceparent(ROOT), traceparent(101)] == [outside, inside]
    assert request_.timeline is context.current()


def test_headers_without_a_tracer_hand_on_the_inbound_ones(clock):
    """Without our own span the caller's trace goes through, from a phase and a call as well."""
    with Request(clock, traced=False) as request, context.phase("agent"):
        direct = context.headers()
        with context.engine_call("chat", "m") as call:
            of_the_call = call.headers()

    expected = {k.decode(): v.decode() for k, v in INBOUND}
    assert [expected, expected] == [direct, of_the_call]
    assert [] == request.tracer.activated


# --- the edges of a request -------------------------------------------------------------------


def use_everything():
    """Say all that an app can say."""
    context.admitted()
    context.annotate(k=1)
    with context.phase("agent") as phase, context.retrieval():
        phase.set(k=1)
        with context.engine_call("chat", "m") as call:
            call.mark("first_token")
            call.usage(output_tokens=1)
        return context.headers(), call.headers()


def test_outside_a_request_everything_is_a_quiet_no_op(caplog):
    """Scripts and tests may run the app's code: nothing is kept, counted, logged or raised."""
    headers = use_everything()

    assert ({}, {}) == headers
    assert context.current() is NO_REQUEST
    assert ([], [], {}) == (NO_REQUEST.intervals, NO_REQUEST.calls, NO_REQUEST.attributes)
    assert (Counter(), Counter(), []) == (faults.dropped, faults.internal, caplog.records)


def test_after_the_end_of_the_request_everything_is_counted_and_nothing_raised(request_):
    """A task that outlives its request may go on; its headers name the root, which exists."""
    request_.timeline.closed = True

    headers = use_everything()

    expected = Counter(
        late_admission=1, late_attributes=1, late_phase=2, late_call=1, late_mark=1, late_usage=1
    )
    assert expected == faults.dropped
    assert (traceparent(ROOT), traceparent(ROOT)) == headers
    assert ([], []) == (request_.rows, request_.timeline.calls)


def test_a_request_inside_a_request_has_parents_of_its_own(clock, request_):
    """An app served in process is another request: the caller's phase is not its phase's parent."""
    with context.phase("agent"):
        with Request(clock, 201) as inner, context.phase("rerank"):
            clock.advance(1)
            headers = context.headers()
        with context.retrieval():
            clock.advance(1)

    expected = [
        [("agent", 0, 2, 101, 0, None), ("retrieval", 1, 2, 102, 101, None)],
        [("rerank", 0, 1, 201, 0, None)],
    ]
    assert expected == [request_.rows, inner.rows]
    assert traceparent(201) == headers


def test_a_phase_left_open_is_no_parent_in_the_next_request(clock):
    """Where one context serves many requests, an abandoned stream does not leak into the next."""

    @contextmanager
    def abandoned():
        with context.phase("agent"):
            yield

    with Request(clock):
        left_open = abandoned()
        left_open.__enter__()
    with Request(clock, 201) as following, context.phase("rerank"):
        clock.advance(1)
    left_open.__exit__(None, None, None)

    assert [("rerank", 0, 1, 201, 0, None)] == following.rows


def test_the_public_names_are_these_functions():
    """What the package exports is what was tested here."""
    names = ("admitted", "annotate", "bind", "current", "engine_call", "headers", "phase")

    for name in (*names, "retrieval"):
        assert getattr(context, name) is getattr(llm_trace, name)


def test_a_phase_name_is_bounded_and_encodable(request_):
    """It becomes a span's name and part of attribute keys, whatever an app makes it of."""
    with context.phase("\ud800" + "x" * 5000):
        pass

    assert ["?" + "x" * 127] == [row[0] for row in request_.rows]


@pytest.mark.parametrize("key", ["a key of sixteen", None])
def test_a_user_is_kept_as_a_keyed_hash_or_not_at_all(clock, key):
    """Neither the attributes nor anything else of the request knows the name."""
    before = faults.dropped["user_without_key"]
    with Request(clock) as request_:
        request_.timeline.settings = Settings(user_key=key)
        llm_trace.user("alice@example.com")
        kept = dict(request_.timeline.attributes)

    expected = {semconv.USER_PSEUDONYM: pseudonym("alice@example.com", key)} if key else {}
    assert expected == kept
    assert faults.dropped["user_without_key"] - before == (key is None)


@pytest.mark.parametrize(
    ("identifier", "texts"), [(7, ["7"]), (UUID(int=7), [str(UUID(int=7))]), (None, [])]
)
def test_a_user_of_any_type_is_taken_as_text_and_none_is_nobody(clock, identifier, texts):
    """An app's ids are numbers and UUIDs as often as text, and a guest has none."""
    with Request(clock) as request_:
        request_.timeline.settings = Settings(user_key="a key of sixteen")
        llm_trace.user(identifier)
        kept = list(request_.timeline.attributes.values())

    assert [pseudonym(text, "a key of sixteen") for text in texts] == kept


def test_outside_a_request_there_is_no_user():
    """Nothing is kept and nothing is counted."""
    before = faults.dropped["user_without_key"]

    llm_trace.user("alice")

    assert before == faults.dropped["user_without_key"]
