"""The line through the prompt lengths, and how sure it says it is."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_trace.bench.fit import fit
from llm_trace.student import quantile


def test_a_straight_line_is_found():
    """Slope and start are those that were put in; nothing is left over."""
    line = fit([[(x, 0.01 + 2e-5 * x)] * 3 for x in (100.0, 500.0, 1000.0)])

    assert (line.slope, line.start) == (pytest.approx(2e-5), pytest.approx(0.01))
    assert (line.low, line.high) == (pytest.approx(2e-5), pytest.approx(2e-5))
    assert (line.samples, line.least_tokens, line.most_tokens) == (9, 100, 1000)
    assert line.explained == pytest.approx(1)
    assert line.bend == pytest.approx(0, abs=1e-9)


def test_the_robust_interval_by_hand():
    """Four lengths of two samples, worked out with numpy from the definitions.

    HC3's standard error is 0.275168; most of it comes from the longest, so that the degrees of
    freedom are 1.2029.
    """
    points = [(1, 1.0), (1, 1.4), (2, 1.9), (2, 2.3), (3, 2.6), (3, 3.6), (4, 3.5), (4, 5.1)]
    line = fit([points[n : n + 2] for n in range(0, 8, 2)])

    assert line.slope == pytest.approx(1.03)
    assert line.start == pytest.approx(0.1)
    assert line.high - line.slope == pytest.approx(
        0.275168085 * quantile(0.95, 1.202897006), rel=1e-6
    )


def test_the_interval_holds_the_truth_where_long_prompts_scatter_more():
    """About as often as it says, though the spread grows with the length."""
    draw = random.Random(3)  # noqa: S311 - the same draws every time
    held = 0
    for _ in range(400):
        groups = [
            [(x, 0.01 + 2e-5 * x * draw.lognormvariate(0, 0.3)) for _ in range(8)]
            for x in (128.0, 512.0, 1024.0, 2048.0)
        ]
        line = fit(groups)
        held += line.low <= 2e-5 * 1.046 <= line.high

    assert 0.92 <= held / 400 <= 0.985


def test_a_bent_line_says_how_far_off_it_is():
    """Attention's quadratic part shows as a distance of a length's median from the line."""
    line = fit([[(x, 0.01 + 1e-8 * x * x)] * 4 for x in (128.0, 1024.0, 4096.0)])

    assert line.bend > 0.3


@pytest.mark.parametrize(
    "groups", [[], [[(1.0, 1.0)] * 20], [[(1.0, 1.0)] * 2, [(2.0, 2.0)] * 3]], ids=len
)
def test_too_little_makes_no_line(groups):
    """One length, or a handful of samples."""
    assert fit(groups) is None


@given(
    st.lists(
        st.lists(st.tuples(st.floats(1, 1e5), st.floats(1e-4, 100)), min_size=1, max_size=5),
        min_size=2,
        max_size=6,
    )
)
def test_any_samples_make_a_line_or_none(groups):
    """An interval around its slope, and a share that is none above one."""
    line = fit(groups)
    if line is not None:
        assert line.low <= line.slope <= line.high
        assert line.explained <= 1 + 1e-6
        assert line.bend >= 0
