"""A whole run against a server whose cache and counters are known beforehand."""

import json
import re
from pathlib import Path

import pytest
from engine_app import TOGETHER, Engine, serving

from llm_trace import cli
from llm_trace.bench import server

SMALL = ("--lengths", "40,80", "--requests", "6", "--max-tokens", "3")


def bench(engine, capsys, *words):
    """Run the command against `engine`: its status, output, and messages."""
    with serving(engine) as url:
        status = cli.main(["bench", url, *words])
    out, err = capsys.readouterr()
    return status, out, err


def measured(engine, capsys, *words):
    """The JSON document of a run that went well."""
    status, out, _ = bench(engine, capsys, *SMALL, "--json", *words)
    assert status == 0
    return json.loads(out)


def test_every_cell_is_measured_and_confirmed(capsys):
    """New prefixes had nothing in the cache, cached ones all whole blocks, by each answer."""
    document = measured(Engine(), capsys, "--concurrency", "1,3")

    assert document["schema"] == "llm-trace.bench/1"
    assert document["complete"]
    assert document["prompt_lengths"] == "exact"
    assert [
        (one["concurrency"], one["prompt_tokens"], one["prefix"]) for one in document["cells"]
    ] == [(c, n, p) for c in (1, 3) for n in (40, 80) for p in ("new", "cached")]
    for one in document["cells"]:
        assert one["requests"] == {"ok": 6, "failed": 0, "cancelled": 0}
        assert one["counted_prompt_tokens"] == one["prompt_tokens"]
        assert (one["reuse"]["verdict"], one["reuse"]["evidence"]) == ("confirmed", "usage")
        cached = one["prefix"] == "cached"
        assert one["reuse"]["share"] == (0 if not cached else pytest.approx(0.85, abs=0.1))
        assert one["ttft"]["samples"] == 6
        assert one["phases"] == {"source": "vllm", "mean": {"queue_wait": 0.25, "prefill": 0.5}}


def test_no_prompt_is_sent_twice_but_where_it_should_be_cached(capsys):
    """Those of cached cells are sent once more, beforehand."""
    engine = Engine()
    measured(engine, capsys, "--concurrency", "2")
    prompts = [body["messages"][0]["content"] for body in engine.bodies]
    repeated = {prompt for prompt in prompts if prompts.count(prompt) > 1}

    assert len(repeated) == 2 * 2  # a prompt for each worker and length
    assert len({prompt.split()[0] for prompt in prompts}) == len(set(prompts))


def test_requests_run_as_many_at_once_as_asked(capsys):
    """Never more, and no fewer: four of the first cell wait until they are four."""
    engine = Engine(faults=[*[""] * 3, *["meets"] * TOGETHER])
    document = measured(engine, capsys, "--concurrency", "4", "--requests", "12")

    assert engine.most == TOGETHER == 4
    assert document["cells"][0]["requests"]["ok"] == 12


def test_the_first_request_is_kept_apart(capsys):
    """A server that has served nothing is cold; after a run it is loaded."""
    engine = Engine()
    with serving(engine) as url:
        starts = []
        for _ in range(2):
            cli.main(["bench", url, *SMALL, "--json"])
            starts.append(json.loads(capsys.readouterr().out)["first_request"])

    assert [start["server"] for start in starts] == ["cold", "loaded"]
    assert all(start["ttft"] > 0 for start in starts)


def test_counters_confirm_where_usage_does_not(capsys):
    """A server without prompt token details, whose metrics page is there."""
    document = measured(Engine(details=False), capsys)

    assert {
        (one["prefix"], one["reuse"]["verdict"], one["reuse"]["evidence"])
        for one in document["cells"]
    } == {("new", "confirmed", "vllm"), ("cached", "confirmed", "vllm")}


def test_without_any_counter_the_run_is_unconfirmed(capsys):
    """It says so, and a threshold can insist."""
    engine = Engine(details=False, metrics=False)
    status, out, err = bench(engine, capsys, *SMALL, "--fail-if", "unconfirmed > 0")

    assert status == 1
    assert "unconfirmed: the server shows no hit counters" in out
    assert "FAILED  unconfirmed > 0" in out
    assert "does not tell whether it was cold" in out
    assert "Traceback" not in err


def test_a_server_without_a_tokenizer_is_calibrated(capsys):
    """Two requests of one token each; the lengths are what usage counts."""
    document = measured(Engine(tokenizer=0), capsys)

    assert document["prompt_lengths"] == "calibrated"
    assert [one["counted_prompt_tokens"] for one in document["cells"]] == [40, 40, 80, 80]


def test_a_server_that_counts_nothing_is_estimated(capsys):
    """Nothing that needs a count is claimed."""
    document = measured(Engine(tokenizer=0, usage=False, metrics=False), capsys)

    assert document["prompt_lengths"] == "estimated"
    assert document["prefill"] is None
    assert {one["counted_prompt_tokens"] for one in document["cells"]} == {None}
    assert {one["tpot"] and one["tpot"]["samples"] for one in document["cells"]} == {None}


def test_failures_are_counted_by_reason(capsys):
    """They are in no latency."""
    calm = [""] * 5  # the first request, two that warm up, one that fills, and a measured one
    engine = Engine(faults=[*calm, "refused", "error", "empty"])
    words = ("--lengths", "40", "--requests", "8", "--json")
    document = json.loads(bench(engine, capsys, *words)[1])
    new = document["cells"][0]

    assert new["requests"] == {"ok": 5, "failed": 3, "cancelled": 0}
    assert new["reasons"] == {"status 429": 1, "error overloaded": 1, "no token": 1}
    assert new["ttft"]["samples"] == 5


def test_a_request_that_hangs_is_cancelled(capsys):
    """And the others are measured."""
    engine = Engine(faults=[*[""] * 4, "hangs"])
    words = ("--lengths", "40", "--requests", "4", "--timeout", "0.3", "--json")
    document = json.loads(bench(engine, capsys, *words)[1])

    assert document["cells"][0]["requests"] == {"ok": 3, "failed": 0, "cancelled": 1}
    assert document["cells"][0]["reasons"] == {"timeout": 1}


def test_a_server_that_goes_away_ends_the_run_and_says_so(capsys):
    """With what was measured until then."""
    document = json.loads(bench(Engine(tokenizer=35), capsys, *SMALL, "--json")[1])

    assert document["stopped"] == "the server's tokenizer does not answer any more"
    assert [one["prompt_tokens"] for one in document["cells"]] == [40, 40]


def test_counters_that_hang_are_done_without(capsys, monkeypatch):
    """Everything that is asked has a bound, not only what is measured."""
    monkeypatch.setattr(server, "SHORT", 0.1)
    document = measured(Engine(metrics="hang", details=False), capsys)

    assert document["first_request"]["server"] == "unknown"
    assert {one["reuse"]["verdict"] for one in document["cells"]} == {"unconfirmed"}


def test_the_time_bound_ends_the_run_and_says_so(capsys):
    """What was measured is shown; what was not is not."""
    engine = Engine(faults=[*[""] * 20, *["hangs"] * 1000])
    words = ("--lengths", "40", "--requests", "30", "--max-seconds", "1", "--json")
    document = json.loads(bench(engine, capsys, *words)[1])

    assert not document["complete"]
    assert document["stopped"] == "--max-seconds 1 was reached"
    assert document["cells"][-1]["reasons"] == {"time bound": 1}


def test_a_first_request_that_fails_ends_the_run(capsys):
    """With the server's words, as they most often say what to change."""
    status, _, err = bench(Engine(faults=["refused"] * 1000), capsys, *SMALL)

    assert status == 2
    assert 'the first request failed: status 429 {"error":{"message":"too many"}}' in err


def test_nothing_answered_is_status_1(capsys):
    """A benchmark without a number is a failure."""
    engine = Engine(faults=["", *["refused"] * 1000])
    status, out, _ = bench(engine, capsys, *SMALL)

    assert status == 1
    assert "40 new, 1 at once: 6 failed, 0 cancelled (6 status 429)" in out


def test_goodput_is_what_met_every_objective(capsys):
    """Of all requests, failed ones included."""
    engine = Engine(faults=[*[""] * 5, "refused"])
    words = ("--lengths", "40", "--requests", "4", "--json")
    objectives = ("--objective", "ttft=30", "--objective", "duration=60")
    good = json.loads(bench(engine, capsys, *words, *objectives)[1])["cells"]
    none = json.loads(bench(Engine(), capsys, *words, "--objective", "ttft=0.000001")[1])["cells"]

    assert [one["good"] for one in good] == [0.75, 1.0]
    assert good[0]["per_second"]["goodput"] == pytest.approx(good[0]["per_second"]["requests"])
    assert [one["good"] for one in none] == [0.0, 0.0]


def test_the_key_is_sent_and_shown_nowhere(capsys, monkeypatch, tmp_path):
    """From a variable; neither the document nor the report has it."""
    monkeypatch.setenv("MY_KEY", "s3cret")
    engine, report = Engine(), tmp_path / "report.html"
    words = ("--api-key-env", "MY_KEY", "--html", str(report), "--json")
    _, out, err = bench(engine, capsys, *SMALL, *words)

    assert {sent["authorization"] for sent in engine.headers} == {"Bearer s3cret"}
    assert "s3cret" not in out + err + report.read_text()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is full")
def test_a_report_that_cannot_be_written_costs_no_result(capsys):
    """The disk filled up during the run: the results are printed, and a sentence says the rest."""
    status, out, err = bench(Engine(), capsys, *SMALL, "--html", "/dev/full", "--json")

    assert (status, json.loads(out)["complete"]) == (2, True)
    assert "--html /dev/full cannot be written: [Errno 28] No space left on device" in err


def test_the_key_goes_to_its_own_server_only(capsys, monkeypatch):
    """Not to another one that has the counters."""
    monkeypatch.setenv("MY_KEY", "s3cret")
    engine, other = Engine(), Engine()
    with serving(other) as url:
        words = ("--api-key-env", "MY_KEY", "--metrics-url", f"{url}/metrics", "--json")
        bench(engine, capsys, *SMALL, *words)

    assert set(other.scraped_by) == {None}
    assert engine.scraped_by == []


def test_lengths_that_do_not_fit_are_left_out(capsys):
    """With a word, and never silently."""
    status, out, err = bench(Engine(), capsys, "--lengths", "40,10000", "--requests", "2")

    assert status == 0
    assert "left out: 10000 prompt tokens, as the model has room for 10000 in all" in err
    assert not re.search(r"^ +10000", out, re.MULTILINE)


def test_the_screen_keeps_to_eighty_columns(capsys):
    """With everything on it."""
    words = ("--concurrency", "1,2", "--objective", "ttft=9", "--fail-if", "failed > 0")
    status, out, _ = bench(Engine(faults=[*[""] * 6, "refused"]), capsys, *SMALL, *words)

    assert status == 1
    assert max(map(len, out.splitlines())) <= 80
