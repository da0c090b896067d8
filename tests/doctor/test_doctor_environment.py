"""What the doctor finds in an environment, and what it says to do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_trace.doctor import environment, reach


def found(check, **environ):
    """What one check says: level and text."""
    return [(finding.level, finding.said) for finding in check(environ)]


def levels(check, **environ):
    """The levels alone."""
    return [finding.level for finding in check(environ)]


def test_versions_are_listed():
    """Ours first."""
    [(level, said)] = found(environment.versions)

    assert level == "ok"
    assert said.startswith("llm_trace ")
    assert "opentelemetry-sdk" in said


@pytest.mark.parametrize(
    ("installed", "level", "says"),
    [
        ({"opentelemetry-api": "1.45.2"}, "fault", "SDK is not installed"),
        ({"opentelemetry-api": "1.45.2", "opentelemetry-sdk": "1.30.0"}, "warning", "is 1.30.0"),
    ],
)
def test_an_sdk_that_is_absent_or_of_another_release_is_said(monkeypatch, installed, level, says):
    """Spans need both of one kind."""
    monkeypatch.setattr(environment, "_version", installed.get)
    *_, (worst, said) = found(environment.versions)

    assert worst == level
    assert says in said


@pytest.mark.parametrize(
    ("check", "environ", "level"),
    [
        (environment.settings, {}, "ok"),
        (environment.settings, {"LLM_TRACE_ENABLED": "maybe"}, "fault"),
        (environment.settings, {"LLM_TRACE_ENABLED": "false"}, "fault"),
        (environment.settings, {"LLM_TRACE_FLIGHTS": "1"}, "fault"),
        (environment.settings, {"LLM_TRACE_DEVICE": "H100"}, "fault"),
        (environment.settings, {"LLM_TRACE_BENCHMARK": "/nowhere.json"}, "fault"),
        (environment.sampling, {}, "ok"),
        (environment.sampling, {"OTEL_TRACES_SAMPLER": "always_off"}, "fault"),
        (environment.sampling, {"OTEL_TRACES_SAMPLER": "traceidratio"}, "note"),
        (
            environment.sampling,
            {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0"},
            "fault",
        ),
        (
            environment.sampling,
            {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "10%"},
            "fault",
        ),
        (environment.sampling, {"OTEL_TRACES_SAMPLER": "Always_On"}, "ok"),
        (environment.sampling, {"OTEL_TRACES_SAMPLER": "alwayson"}, "warning"),
        (environment.sampling, {"OTEL_TRACES_SAMPLER_ARG": "0.1"}, "warning"),
        (environment.switched_off, {"OTEL_SDK_DISABLED": "TRUE"}, "fault"),
        (environment.switched_off, {"OTEL_TRACES_EXPORTER": "none"}, "fault"),
        (environment.workers, {"PROMETHEUS_MULTIPROC_DIR": "/nowhere"}, "fault"),
        (environment.workers, {"PROMETHEUS_MULTIPROC_DIR": "/tmp"}, "ok"),  # noqa: S108 - exists
        (environment.workers, {"WEB_CONCURRENCY": "4"}, "warning"),
        (lambda e: reach.endpoint("traces", e), {}, "fault"),
        (lambda e: reach.endpoint("metrics", e), {}, "note"),
        (
            lambda e: reach.endpoint("traces", e),
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4317"},
            "fault",
        ),
    ],
)
def test_each_fault_is_found(check, environ, level):
    """And has a way out."""
    [finding] = check(environ)

    assert finding.level == level
    assert bool(finding.fix) == (level in {"fault", "warning"})


@pytest.mark.parametrize(
    ("environ", "why"),
    [
        ({"OTEL_SDK_DISABLED": "true"}, "OTEL_SDK_DISABLED=true"),
        ({"OTEL_METRICS_EXPORTER": "none"}, "OTEL_METRICS_EXPORTER=none"),
    ],
)
def test_a_signal_that_is_switched_off_does_not_lack_an_endpoint(environ, why):
    """It has one, and the variable that keeps it from going there is named."""
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317", **environ}

    assert [f[1:3] for f in reach.endpoint("metrics", environ)] == [
        ("note", f"{why}: they are not sent")
    ]


def test_a_share_of_ordinary_traces_is_said_beside_the_sampler():
    """A single quick request may leave none."""
    *_, (level, said) = found(environment.sampling, LLM_TRACE_TAIL_SHARE="0.05")

    assert level == "note"
    assert "keeps 0.05 of ordinary requests" in said


@pytest.mark.parametrize("check", [environment.switched_off, environment.workers])
def test_nothing_is_said_where_nothing_is_set(check):
    """A report is no list of what is not there."""
    assert found(check) == []


@pytest.mark.parametrize(
    ("names", "environ", "level"),
    [
        ([], {}, "fault"),
        (["llm_trace"], {}, "ok"),
        (["llm_trace"], {"VLLM_PLUGINS": "lora"}, "fault"),
        (["llm_trace"], {"VLLM_PLUGINS": "lora,llm_trace"}, "ok"),
    ],
)
def test_a_vllm_that_does_not_load_us_is_found(monkeypatch, names, environ, level):
    """The entry point, and the list that may hide it."""

    class Point:
        def __init__(self, name):
            self.name = name

    monkeypatch.setattr(environment, "_version", lambda name: "1" if name == "vllm" else None)
    monkeypatch.setattr(
        environment.metadata, "entry_points", lambda **_: [Point(name) for name in names]
    )

    assert levels(environment.plugin, **environ) == [level]


VARIABLES = (
    *("OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG", "OTEL_SDK_DISABLED"),
    *("OTEL_TRACES_EXPORTER", "PROMETHEUS_MULTIPROC_DIR", "WEB_CONCURRENCY", "VLLM_PLUGINS"),
    *("LLM_TRACE_ENABLED", "LLM_TRACE_SLOW_TTFT", "LLM_TRACE_TAIL_SHARE"),
)


@given(st.dictionaries(st.sampled_from(VARIABLES), st.text(st.characters(codec="ascii"))))
def test_no_value_of_a_variable_makes_a_traceback(environ):
    """Whatever somebody has set; a NUL cannot be in an environment."""
    clean = {name: text.replace("\0", "") for name, text in environ.items()}

    for check in environment.CHECKS:
        assert all(finding.said for finding in check(clean))
