"""Traffic with known waits on a real Prometheus: the app's own pages, under a fake clock."""

from __future__ import annotations

import random
from contextlib import contextmanager

from board_prometheus import STEP, _promtool, _serving, stamped
from board_traffic import Request, Served

MINUTES = 60
PAGES = MINUTES * 60 // STEP


def requests(seed, number=5, **means):
    """So many requests a page for an hour, their waits spread around `means`, in ms."""
    draw = random.Random(seed)  # noqa: S311 - the same traffic every time

    def spread(mean):
        return max(1, round(mean * draw.lognormvariate(-0.18, 0.6)))

    typical = {"retrieval": 30, "queue": 20, "prefill": 60, "first_token": 4}
    waits = {**typical, **means}
    for _ in range(PAGES):
        yield [Request(**{k: spread(v) for k, v in waits.items()}) for _ in range(number)]


def samples(rounds, start, **labels):
    """What Prometheus scrapes of one process that serves `rounds`, a page each half minute."""
    process = Served()
    for number, served in enumerate(rounds):
        process.serve(served)
        yield from stamped(process.page(), start + number * STEP, **labels)


@contextmanager
def holding_samples(folder, programs, *scraped):
    """Run a Prometheus that holds these samples; its URL."""
    lines = sorted((line for part in scraped for line in part), key=lambda x: int(x.split()[-1]))
    page = folder / "samples.txt"
    page.write_text("\n".join([*lines, "# EOF", ""]))
    _promtool(programs, "tsdb", "create-blocks-from", "openmetrics", page, folder / "data")
    with _serving(folder, programs) as url:
        yield url
