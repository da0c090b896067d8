"""A trace as a tree: every span once, whatever its parents say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from llm_trace.traces.spans import Span, tree


def span(span_id, parent="", start=1, **attributes):
    """A span of one trace."""
    return Span("f" * 32, span_id, parent, span_id, "app", start, start + 1, attributes)


def test_a_tree_is_walked_by_start_whatever_the_order_of_arrival():
    """Depth is parentage; a span whose parent never came stands at the top."""
    root, late, early, lost = span("r"), span("a", "r", 4), span("b", "r", 3), span("c", "gone", 2)

    assert list(tree([late, lost, early, root])) == [(0, root), (1, early), (1, late), (0, lost)]


def test_a_circle_is_shown_at_the_top():
    """Nothing that was measured is lost, and nothing goes round."""
    circle = [span("b", "c"), span("c", "b")]
    lost = span("a", "gone")

    assert list(tree([*circle, lost])) == [(0, lost), (0, circle[0]), (0, circle[1])]


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), max_size=9, unique_by=lambda x: x[0])
)
def test_every_span_is_shown_once(pairs):
    """Of any parentage."""
    spans = [span(str(each), str(parent)) for each, parent in pairs]

    assert sorted(shown.span_id for _, shown in tree(spans)) == sorted(x.span_id for x in spans)


def test_a_root_is_a_span_with_an_outcome():
    """Ours alone has one."""
    assert span("a", **{"llm_trace.outcome": "ok"}).is_root
    assert not span("a", **{"llm_trace.phase": "prefill"}).is_root
