"""The law: whatever the witnesses say, the phases tile the request exactly."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_trace import semconv as s
from llm_trace.core import ledger as m
from llm_trace.core.ledger import Claim, Segment
from llm_trace.core.record import sum_by_phase

EPOCH = 1_700_000_000_000_000_000
HUGE = 2**200

MOMENTS = sorted({*m.STREAMED, *m.PLAIN})
APP_NAMES = ("rerank", "agent step")

nonsense = st.one_of(
    st.none(),
    st.booleans(),
    st.text(max_size=3),
    st.floats(),
    st.sampled_from(
        [0, -1, 0.5, math.nan, math.inf, -math.inf, HUGE, -HUGE, EPOCH, 1e300, (), b"7"]
    ),
)
stamps = st.one_of(st.integers(1, 60), st.floats(1, 60), nonsense)
moments = st.dictionaries(st.sampled_from([*MOMENTS, "invented"]), stamps)
orders = st.sampled_from([m.STREAMED, m.PLAIN])
edges = st.one_of(st.integers(-5, 70), st.sampled_from([HUGE, -HUGE]))
claims = st.lists(
    st.builds(
        Claim, st.sampled_from([s.RETRIEVAL, s.MODEL_LOAD, s.GENERATION, *APP_NAMES]), edges, edges
    ),
    max_size=8,
)


@st.composite
def contradictory(draw):
    """Moments as faulty witnesses give them, the ends of the request mostly believable."""
    said = draw(moments)
    if draw(st.booleans()):
        said |= {m.RECEIVED: draw(st.integers(1, 10)), m.FINISHED: draw(st.integers(40, 70))}
    return said


@st.composite
def in_order(draw):
    """An order, and moments that agree with it, some of them missing or at the same time."""
    order = draw(orders)
    there = [k for k in order if k in {m.RECEIVED, m.FINISHED} or draw(st.booleans())]
    times = draw(st.lists(st.integers(1, 99), min_size=len(there), max_size=len(there)))
    return order, dict(zip(there, sorted(times), strict=True))


@given(contradictory(), claims, st.booleans(), st.booleans())
def test_any_evidence_tiles_the_request_exactly(said, asked, streamed, ended_early):
    """Segments run from received to finished in order, none empty, with no gap or overlap."""
    ledger = m.tile(said, asked, streamed=streamed, ended_early=ended_early)

    received = m.stamp(said.get(m.RECEIVED))
    finished = max(received, m.stamp(said.get(m.FINISHED)))
    bounds = [received, *(end for _, _, end in ledger.segments)]
    assert [start for _, start, _ in ledger.segments] == bounds[:-1]
    assert finished == bounds[-1]
    assert bounds == sorted(set(bounds))
    assert {int} == {type(bound) for bound in bounds}
    assert finished - received == sum(sum_by_phase(ledger.segments).values())


@given(contradictory(), claims, st.booleans(), st.booleans())
def test_every_phase_has_a_name_of_the_vocabulary_or_of_the_app(said, asked, streamed, ended_early):
    """A segment is named by the ledger or by an interval, and no name comes twice in a row."""
    segments = m.tile(said, asked, streamed=streamed, ended_early=ended_early).segments

    names = [segment.phase for segment in segments]
    assert set(names) <= {*s.PHASES, *(claim.phase for claim in asked)}
    assert all(left != right for left, right in pairwise(names))


@given(contradictory(), claims, st.booleans())
def test_the_phases_before_the_first_token_sum_to_ttft(said, asked, ended_early):
    """When the first visible token is believed, what lies before it adds up to the nanosecond."""
    ledger = m.tile(said, asked, streamed=True, ended_early=ended_early)

    first = ledger.moments.get(m.FIRST_TOKEN_SENT, ledger.moments[m.RECEIVED])
    before = sum_by_phase(ledger.segments, first)
    assert first - ledger.moments[m.RECEIVED] == sum(before.values())


@given(in_order())
def test_moments_that_agree_are_all_kept(agreed):
    """Whatever is missing or simultaneous, stamps in legal order are all believed."""
    order, said = agreed

    assert (said, 0) == m.keep_moments(order, said)


@given(contradictory(), orders)
def test_the_kept_moments_are_in_order_and_the_rest_is_counted(said, order):
    """Each stamp is kept as it was given or counted as dropped; nonsense is neither."""
    kept, dropped = m.keep_moments(order, said)

    stamped = {k: at for k in order if (at := m.stamp(said.get(k)))}
    lost = [k for k, at in stamped.items() if kept.get(k) != at]
    assert len(lost) == dropped
    assert [k for k in order if k in kept] == list(kept)
    assert sorted(kept.values()) == list(kept.values())


@given(contradictory(), orders)
def test_a_trusted_moment_never_falls_for_a_less_trusted_one(said, order):
    """Taking away what the less trusted witnesses said changes nothing about the others."""
    kept, _ = m.keep_moments(order, said)

    for rank in range(2, len(m.TRUST) + 1):
        witnesses = m.TRUST[:rank]
        alone, _ = m.keep_moments(order, {k: said[k] for k in witnesses if k in said})
        assert {k: at for k, at in kept.items() if k in witnesses} == alone


def by_the_nanosecond(stretches, asked):
    """The rule of claims, applied to one nanosecond at a time."""
    owners = []
    for phase, start, end in stretches:
        for now in range(start, end):
            rivals = [
                (rank, claim.start, place, claim.phase)
                for place, claim in enumerate(asked)
                for rank, takes in [m.CLAIMS.get(claim.phase, m._NAMED_BY_APP)]
                if phase in takes and claim.start <= now < claim.end
            ]
            owners.append(max(rivals)[3] if rivals else phase)
    return owners


@given(in_order(), claims, st.booleans())
def test_claims_agree_with_a_ledger_kept_by_the_nanosecond(agreed, asked, ended_early):
    """The more specific claim wins, then the latest started, then the one given last."""
    order, said = agreed
    streamed = order is m.STREAMED
    bare = m.tile(said, streamed=streamed, ended_early=ended_early).segments

    claimed = m.tile(said, asked, streamed=streamed, ended_early=ended_early).segments

    owners = [phase for phase, start, end in claimed for _ in range(start, end)]
    assert by_the_nanosecond(bare, asked) == owners


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (7, 7),
        (7.9, 7),
        (HUGE, HUGE),
        (1e300, int(1e300)),
        (0, 0),
        (-3, 0),
        (0.5, 0),
        (-7.0, 0),
        (math.nan, 0),
        (math.inf, 0),
        (-math.inf, 0),
        (True, 0),
        (None, 0),
        ("7", 0),
        (b"7", 0),
    ],
)
def test_what_is_no_positive_number_is_missing(value, expected):
    """Zero, negative, NaN, infinite, boolean and textual stamps are no stamps."""
    assert expected == m.stamp(value)


def test_only_so_many_claims_are_weighed():
    """Past the bound intervals are left out, so the work of one request stays bounded."""
    asked = [Claim(s.RETRIEVAL, at, at + 1) for at in range(10, 10 + 2 * m.MAX_CLAIMS, 2)]
    late = Claim("rerank", 900, 950)
    said = {m.RECEIVED: 1, m.ADMITTED: 5, m.HANDED_OFF: 1000, m.FINISHED: 1000}

    ledger = m.tile(said, [*asked, late], streamed=True, ended_early=False)

    weighed = m.MAX_CLAIMS
    expected = {s.ADMISSION: 4, s.PREPARE: 995 - weighed, s.RETRIEVAL: weighed}
    assert expected == sum_by_phase(ledger.segments)


def test_the_tables_name_every_stretch_that_can_be():
    """Each moment that can begin a stretch has a name for it, complete, folded or cut off."""
    for order in (m.STREAMED, m.PLAIN):
        for place, left in enumerate(order[:-1]):
            assert left in m.OPEN
            for right in order[place + 1 :]:
                assert (left, right) in m.PHASE_BETWEEN or left in m.FOLDED


def test_every_moment_has_a_rank_of_trust():
    """A moment that no witness is trusted for could never be kept."""
    assert {*m.STREAMED, *m.PLAIN} == set(m.TRUST)
    assert len(m.TRUST) == len(set(m.TRUST))


FULL = {
    m.RECEIVED: 100,
    m.ADMITTED: 110,
    m.HANDED_OFF: 130,
    m.QUEUED: 135,
    m.SCHEDULED: 150,
    m.FIRST_TOKEN_ENGINE: 200,
    m.FIRST_TOKEN_SENT: 210,
    m.LAST_TOKEN_ENGINE: 390,
    m.LAST_TOKEN_SENT: 400,
    m.RETURNED: 402,
    m.FINISHED: 405,
}


def only(*names, **stamps_of):
    """The full request with only these moments, or with other stamps for some."""
    return {k: FULL[k] for k in names} | stamps_of


WORKED = [
    pytest.param(
        FULL,
        [],
        [
            (s.ADMISSION, 100, 110),
            (s.PREPARE, 110, 130),
            (s.QUEUE_WAIT, 130, 150),
            (s.PREFILL, 150, 200),
            (s.FIRST_TOKEN, 200, 210),
            (s.DECODE, 210, 400),
            (s.FINISH, 400, 405),
        ],
        0,
        id="everything-known",
    ),
    pytest.param(
        only(m.RECEIVED, m.FINISHED), [], [(s.UNATTRIBUTED, 100, 405)], 0, id="nothing-known"
    ),
    pytest.param(
        only(m.RECEIVED, m.FIRST_TOKEN_SENT, m.FINISHED),
        [],
        [(s.UNATTRIBUTED, 100, 210), (s.DECODE, 210, 405)],
        0,
        id="only-the-middleware-spoke",
    ),
    pytest.param(
        only(
            m.RECEIVED, m.ADMITTED, m.HANDED_OFF, m.FIRST_TOKEN_SENT, m.LAST_TOKEN_SENT, m.FINISHED
        ),
        [],
        [
            (s.ADMISSION, 100, 110),
            (s.PREPARE, 110, 130),
            (s.ENGINE, 130, 210),
            (s.DECODE, 210, 400),
            (s.FINISH, 400, 405),
        ],
        0,
        id="engine-without-split",
    ),
    pytest.param(
        FULL
        | {
            m.QUEUED: EPOCH,
            m.SCHEDULED: EPOCH + 15,
            m.FIRST_TOKEN_ENGINE: EPOCH + 65,
            m.LAST_TOKEN_ENGINE: EPOCH + 255,
        },
        [],
        [
            (s.ADMISSION, 100, 110),
            (s.PREPARE, 110, 130),
            (s.ENGINE, 130, 210),
            (s.DECODE, 210, 400),
            (s.FINISH, 400, 405),
        ],
        3,
        id="engine-stamps-of-a-foreign-clock",
    ),
    pytest.param(
        FULL | {m.SCHEDULED: 120},
        [],
        [
            (s.ADMISSION, 100, 110),
            (s.PREPARE, 110, 130),
            (s.QUEUE_WAIT, 130, 135),
            (s.ENGINE, 135, 200),
            (s.FIRST_TOKEN, 200, 210),
            (s.DECODE, 210, 400),
            (s.FINISH, 400, 405),
        ],
        1,
        id="scheduled-before-the-hand-off",
    ),
    pytest.param(
        FULL,
        [Claim(s.RETRIEVAL, 112, 120), Claim(s.RETRIEVAL, 114, 125)],
        [
            (s.ADMISSION, 100, 110),
            (s.PREPARE, 110, 112),
            (s.RETRIEVAL, 112, 125),
            (s.PREPARE, 125, 130),
            (s.QUEUE_WAIT, 130, 150),
            (s.PREFILL, 150, 200),
            (s.FIRST_TOKEN, 200, 210),
            (s.DECODE, 210, 400),
            (s.FINISH, 400, 405),
        ],
        0,
        id="two-retrievals-in-parallel-are-their-union",
    ),
    pytest.param(
        FULL,
        [Claim("agent step", 111, 129), Claim(s.RETRIEVAL, 114, 120)],
        [
            (s.ADMISSION, 100, 110),
            (s.PREPARE, 110, 111),
            ("agent step", 111, 114),
            (s.RETRIEVAL, 114, 120),
            ("agent step", 120, 129),
            (s.PREPARE, 129, 130),
            (s.QUEUE_WAIT, 130, 150),
            (s.PREFILL, 150, 200),
            (s.FIRST_TOKEN, 200, 210),
            (s.DECODE, 210, 400),
            (s.FINISH, 400, 405),
        ],
        0,
        id="a-retrieval-inside-a-phase-of-the-app",
    ),
    pytest.param(
        FULL,
        [Claim(s.RETRIEVAL, 105, 170), Claim(s.MODEL_LOAD, 145, 300)],
        [
            (s.ADMISSION, 100, 105),
            (s.RETRIEVAL, 105, 130),
            (s.QUEUE_WAIT, 130, 145),
            (s.MODEL_LOAD, 145, 200),
            (s.FIRST_TOKEN, 200, 210),
            (s.DECODE, 210, 400),
            (s.FINISH, 400, 405),
        ],
        0,
        id="only-a-model-load-takes-time-from-the-engine",
    ),
    pytest.param(
        {
            m.RECEIVED: 1_000,
            m.ADMITTED: 1_800,
            m.HANDED_OFF: 1_800,
            m.QUEUED: 1_800,
            m.SCHEDULED: 1_900,
            m.FIRST_TOKEN_ENGINE: 2_400,
            m.FIRST_TOKEN_SENT: 2_400,
            m.LAST_TOKEN_SENT: 2_400,
            m.FINISHED: 2_400,
        },
        [],
        [(s.ADMISSION, 1000, 1800), (s.QUEUE_WAIT, 1800, 1900), (s.PREFILL, 1900, 2400)],
        0,
        id="the-wait-before-the-queue-has-an-owner",
    ),
    pytest.param(
        FULL | {m.FINISHED: 90},
        [],
        [],
        8,
        id="an-end-before-the-beginning",
    ),
]


@pytest.mark.parametrize(("said", "asked", "expected", "dropped"), WORKED)
def test_streamed_requests_that_completed(said, asked, expected, dropped):
    """The worked examples of a stream: which moments are known decides which phases exist."""
    ledger = m.tile(said, asked, streamed=True, ended_early=False)

    assert (tuple(Segment(*row) for row in expected), dropped) == (ledger.segments, ledger.dropped)


PLAIN = [
    pytest.param(
        FULL,
        [
            (s.ADMISSION, 100, 110),
            (s.PREPARE, 110, 130),
            (s.QUEUE_WAIT, 130, 150),
            (s.PREFILL, 150, 200),
            (s.DECODE, 200, 390),
            (s.FINISH, 390, 405),
        ],
        id="everything-known",
    ),
    pytest.param(
        only(m.RECEIVED, m.ADMITTED, m.HANDED_OFF, m.RETURNED, m.FINISHED),
        [
            (s.ADMISSION, 100, 110),
            (s.PREPARE, 110, 130),
            (s.ENGINE, 130, 402),
            (s.FINISH, 402, 405),
        ],
        id="engine-without-split",
    ),
    pytest.param(
        only(m.RECEIVED, m.ADMITTED, m.HANDED_OFF, m.SCHEDULED, m.FIRST_TOKEN_ENGINE, m.RETURNED)
        | only(m.FINISHED),
        [
            (s.ADMISSION, 100, 110),
            (s.PREPARE, 110, 130),
            (s.QUEUE_WAIT, 130, 150),
            (s.PREFILL, 150, 200),
            (s.DECODE, 200, 402),
            (s.FINISH, 402, 405),
        ],
        id="the-return-stands-in-for-the-last-token",
    ),
    pytest.param(
        only(m.RECEIVED, m.ADMITTED, m.HANDED_OFF, m.FIRST_TOKEN_ENGINE, m.FINISHED),
        [
            (s.ADMISSION, 100, 110),
            (s.PREPARE, 110, 130),
            (s.ENGINE, 130, 200),
            (s.UNATTRIBUTED, 200, 405),
        ],
        id="no-word-of-the-end",
    ),
]


@pytest.mark.parametrize(("said", "expected"), PLAIN)
def test_plain_requests_that_completed(said, expected):
    """An answer in one piece has no first visible token: decoding runs to the engine's last."""
    ledger = m.tile(said, streamed=False, ended_early=False)

    assert (tuple(Segment(*row) for row in expected), 0) == (ledger.segments, ledger.dropped)
    assert m.FIRST_TOKEN_SENT not in ledger.moments


BEGUN = [(s.ADMISSION, 100, 110), (s.PREPARE, 110, 130)]
ENGAGED = [*BEGUN, (s.QUEUE_WAIT, 130, 150), (s.PREFILL, 150, 200)]
VISIBLE = [*ENGAGED, (s.FIRST_TOKEN, 200, 210)]

CUT = [
    (m.RECEIVED, [(s.ADMISSION, 100, 404)]),
    (m.ADMITTED, [(s.ADMISSION, 100, 110), (s.UNATTRIBUTED, 110, 404)]),
    (m.HANDED_OFF, [*BEGUN, (s.ENGINE, 130, 404)]),
    (m.QUEUED, [*BEGUN, (s.QUEUE_WAIT, 130, 404)]),
    (m.SCHEDULED, [*BEGUN, (s.QUEUE_WAIT, 130, 150), (s.PREFILL, 150, 404)]),
]
CUT_STREAMED = [
    *CUT,
    (m.FIRST_TOKEN_ENGINE, [*ENGAGED, (s.FIRST_TOKEN, 200, 404)]),
    (m.FIRST_TOKEN_SENT, [*VISIBLE, (s.DECODE, 210, 404)]),
    (m.LAST_TOKEN_SENT, [*VISIBLE, (s.DECODE, 210, 404)]),
]
CUT_PLAIN = [
    *CUT,
    (m.FIRST_TOKEN_ENGINE, [*ENGAGED, (s.DECODE, 200, 404)]),
    (m.LAST_TOKEN_ENGINE, [*ENGAGED, (s.DECODE, 200, 390), (s.FINISH, 390, 404)]),
    (m.RETURNED, [*ENGAGED, (s.DECODE, 200, 390), (s.FINISH, 390, 404)]),
]


@pytest.mark.parametrize(
    ("streamed", "last", "expected"),
    [(True, *row) for row in CUT_STREAMED] + [(False, *row) for row in CUT_PLAIN],
)
def test_an_early_end_closes_the_phase_that_the_request_was_in(streamed, last, expected):
    """Whatever the last moment before a cut, its phase ends there and nothing after it exists."""
    order = m.STREAMED if streamed else m.PLAIN
    said = {k: FULL[k] for k in order[: order.index(last) + 1]} | {m.FINISHED: 404}

    ledger = m.tile(said, streamed=streamed, ended_early=True)

    assert (tuple(Segment(*row) for row in expected), said) == (ledger.segments, ledger.moments)


def test_a_claim_that_ends_before_it_begins_takes_nothing():
    """A backward interval is no interval."""
    bare = m.tile(FULL, streamed=True, ended_early=False)

    claimed = m.tile(FULL, [Claim(s.RETRIEVAL, 125, 115)], streamed=True, ended_early=False)

    assert bare == claimed
