"""`llm-trace bench` on real vLLM: what it calls new and cached is so by vLLM's own counters."""

from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
from programs import clean_environment

from llm_trace.core import expected

pytestmark = pytest.mark.vllm

LENGTHS = (128, 1024, 4096)
REQUESTS = 7
BLOCK = 32
QUERIES, HITS = "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total"


@pytest.fixture(scope="module")
def run(vllm, tmp_path_factory):
    """One run as a user starts it, and vLLM's counters before and after."""
    folder = tmp_path_factory.mktemp("bench")
    report, file = folder / "report.html", folder / "bench.json"
    command = [
        *(sys.executable, "-m", "llm_trace.cli", "bench", f"http://127.0.0.1:{vllm.port}"),
        *("--lengths", ",".join(map(str, LENGTHS)), "--concurrency", "1,2"),
        *("--requests", str(REQUESTS), "--max-tokens", "4", "--body", '{"temperature": 1}'),
        *("--fail-if", "unconfirmed > 0", "--fail-if", "failed > 0"),
        *("--html", str(report), "--json"),
    ]
    before = vllm.scrape()
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=240, check=False, env=clean_environment()
    )
    assert done.returncode in {0, 1}, done.stderr
    file.write_text(done.stdout)
    return SimpleNamespace(
        done=done,
        document=json.loads(done.stdout),
        file=file,
        report=report,
        grown={name: vllm.scrape().total(name) - before.total(name) for name in (QUERIES, HITS)},
    )


def cells(run, prefix, concurrency=1):
    """The cells of one prefix, by length."""
    return {
        one["prompt_tokens"]: one
        for one in run.document["cells"]
        if (one["prefix"], one["concurrency"]) == (prefix, concurrency)
    }


def test_every_cell_is_confirmed(run):
    """New prefixes found nothing in the cache, cached ones every whole block but the last."""
    assert run.done.returncode == 0, run.done.stderr
    assert run.document["complete"]
    for one in run.document["cells"]:
        assert one["requests"] == {"ok": REQUESTS, "failed": 0, "cancelled": 0}
        assert (one["reuse"]["verdict"], one["reuse"]["evidence"]) == ("confirmed", "usage")
        length = one["prompt_tokens"]
        whole = (length - 1) // BLOCK * BLOCK
        share = whole / length if one["prefix"] == "cached" else 0.0
        assert one["reuse"]["share"] == pytest.approx(share, abs=BLOCK / length / 2)


def test_the_lengths_are_exact(run):
    """vLLM counted as many prompt tokens as were asked for, chat template and all."""
    assert run.document["prompt_lengths"] == "exact"
    assert [one["counted_prompt_tokens"] for one in run.document["cells"]] == [
        one["prompt_tokens"] for one in run.document["cells"]
    ]


def test_vllms_hit_counters_say_the_same(run):
    """Tokens found in the cache, over the whole run: the cached cells' whole blocks."""
    found = sum(
        one["reuse"]["share"] * one["prompt_tokens"] * REQUESTS for one in run.document["cells"]
    )

    assert run.grown[HITS] == pytest.approx(found, rel=0.02)
    assert run.grown[QUERIES] > 2 * len(LENGTHS) * REQUESTS * sum(LENGTHS) / len(LENGTHS)


def test_ttft_grows_with_the_length_and_falls_with_the_cache(run):
    """The medians of new prefixes are in order; a cached one of the longest is far below it."""
    new, cached = (cells(run, prefix) for prefix in ("new", "cached"))
    medians = [new[length]["ttft"]["median"] for length in LENGTHS]

    sys.stdout.write(f"medians of new prefixes, s: {medians}\n")
    assert medians == sorted(medians)
    assert medians[-1] > 3 * medians[0]
    assert cached[LENGTHS[-1]]["ttft"]["median"] < medians[-1] / 3


def test_a_token_costs_something(run):
    """The interval of the slope lies above 0, and the line is that of these lengths."""
    line = run.document["prefill"]
    resistant = line["resistant"]

    assert 0 < resistant["low"] <= resistant["slope"] <= resistant["high"]
    assert (line["least_tokens"], line["most_tokens"]) == (LENGTHS[0], LENGTHS[-1])
    assert line["samples"] == REQUESTS * len(LENGTHS)


def test_the_servers_own_ledger_is_inside_the_clients_time(run):
    """Each phase by the server's clock; their sum is its TTFT, a little under the client's."""
    for one in run.document["cells"]:
        assert one["phases"]["source"] == "ledger"
        assert {"queue_wait", "prefill"} <= one["phases"]["mean"].keys()
        total = sum(one["phases"]["mean"].values())
        assert total == pytest.approx(one["server_ttft"]["mean"], rel=1e-6)
        assert one["server_ttft"]["median"] < one["ttft"]["median"]


def test_the_middleware_can_expect_what_was_measured(run):
    """The document is read as it was printed."""
    made = expected.read(str(run.file))

    assert made.new.tokens == made.cached.tokens == LENGTHS
    new, cached = made.at(1024, 0), made.at(1024, 0.97)
    assert new == cells(run, "new")[1024]["server_ttft"]["median"]
    assert cached < new


def test_the_report_is_written(run):
    """A page with a plot for each concurrency, two of throughput, and one of phases."""
    assert run.report.read_text().count("<svg") == 5
