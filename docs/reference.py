"""Writes the reference tables of docs/ from the code; `--check` fails where a page is out of date.

Run it from the repository: `python docs/reference.py`. Each table stands between two markers,
`<!-- reference: NAME -->` and `<!-- end -->`; the prose around them is by hand.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from llm_trace import semconv as s
from llm_trace.core import ledger
from llm_trace.diagnosis import rules
from llm_trace.settings import PREFIX, Settings
from vllm_versions.extract import known
from vllm_versions.surfaces import FEATURES, every_surface

DOCS = Path(__file__).parent
MARKED = re.compile(r"(<!-- reference: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    lines = [list(head), ["---"] * len(list(head)), *map(list, rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def settings() -> str:
    """Every setting: keyword, variable, default, meaning."""
    rows = []
    for field in dataclasses.fields(Settings):
        default = getattr(Settings(), field.name)
        shown = "the probes, docs and model lists of common servers"
        if field.name != "quiet_paths":
            shown = f"`{default!r}`"
        rows.append(
            (f"`{field.name}`", f"`{PREFIX}{field.name.upper()}`", shown, field.metadata["doc"])
        )
    return table(("keyword", "variable", "default", "what it does"), rows)


def metrics() -> str:
    """Every metric: both names, kind, labels, meaning."""
    rows = [
        (
            f"`{m.prometheus}`",
            f"`{m.name}`",
            f"{m.kind}, `{m.unit}`",
            ", ".join(f"`{label.replace('.', '_')}`" for label in m.labels),
            m.help,
        )
        for m in s.METRICS
    ]
    return table(("Prometheus", "OpenTelemetry", "kind, unit", "labels", "meaning"), rows)


def buckets() -> str:
    """Every set of bucket bounds."""
    rows = {m.buckets: [] for m in s.METRICS if m.buckets}
    for m in s.METRICS:
        if m.buckets:
            rows[m.buckets].append(f"`{m.prometheus}`")
    return table(
        ("metrics", "bounds, in the unit of the metric"),
        ((", ".join(names), " ".join(f"{b:g}" for b in bounds)) for bounds, names in rows.items()),
    )


def phases() -> str:
    """Which two moments bound which phase."""
    rows = [
        (f"`{left}`", f"`{right}`", f"`{phase}`")
        for (left, right), phase in ledger.PHASE_BETWEEN.items()
    ]
    return table(("from", "to", "phase"), rows)


def folded() -> str:
    """What a stretch is called when a moment is missing, or when the request ended early."""
    rows = [
        (f"`{left}`", f"`{ledger.FOLDED.get(left, '')}`".replace("``", ""), f"`{phase}`")
        for left, phase in ledger.OPEN.items()
    ]
    return table(("after", "the next moment is missing", "the request ended early"), rows)


def verdicts() -> str:
    """Every rule of every phase, in the order in which they are asked."""
    lists = [
        ("before all", (rules.EDGE,)),
        *rules.RULES.items(),
        ("the app's own", rules.APP_PHASE),
    ]
    rows = [
        (f"`{phase}`" if phase in s.PHASES else phase, f"`{rule.cause}`", rule.next_check)
        for phase, listed in lists
        for rule in listed
    ]
    return table(("phase", "verdict", "what to look at next"), dict.fromkeys(rows))


def vllm_versions() -> str:
    """What users get in each version of vLLM."""
    versions = known()
    rows = [
        (f.name, *("yes" if f.holds(facts) else "no" for facts in versions.values()))
        for f in FEATURES
    ]
    return table(("what users get", *versions), rows)


def vllm_lacks() -> str:
    """Which names a version of vLLM does not have."""
    rows = []
    for version, facts in known().items():
        missing = [f"`{surface}`" for surface in every_surface() if not surface.holds(facts)]
        rows.append((version, ", ".join(missing)))
    return table(("vLLM", "missing names"), rows)


TABLES: dict[str, Callable[[], str]] = {
    "settings": settings,
    "metrics": metrics,
    "buckets": buckets,
    "phases": phases,
    "folded": folded,
    "verdicts": verdicts,
    "vllm_versions": vllm_versions,
    "vllm_lacks": vllm_lacks,
}


def render(text: str) -> str:
    """`text` with every marked table made anew."""
    return MARKED.sub(lambda m: f"{m[1]}\n{TABLES[m[2]]()}\n{m[3]}", text)


def main() -> int:
    """Write or check every page; 1 when a page is out of date."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, fail on a difference")
    check = parser.parse_args().check
    stale = []
    for page in sorted(DOCS.glob("*.md")):
        before = page.read_text(encoding="utf-8")
        after = render(before)
        if before != after:
            stale.append(page.name)
            if not check:
                page.write_text(after, encoding="utf-8")
    if stale:
        print(f"{'out of date' if check else 'written'}: {', '.join(stale)}", file=sys.stderr)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
