"""Every setting: by variable and by keyword, checked at start, explained where it is wrong."""

import dataclasses

import pytest

from llm_trace.errors import LlmTraceError, SettingsError
from llm_trace.settings import CAPTURE, FOREIGN, HIDDEN, QUIET_PATHS, SECRETS, Settings

GOOD = {
    "enabled": ("no", False),
    "provider": ("sglang", "sglang"),
    "served_models": ("a, b,", ("a", "b")),
    "phases": ("rerank", ("rerank",)),
    "routes": ("/ask=chat, /embed = embeddings", {"/ask": "chat", "/embed": "embeddings"}),
    "quiet_paths": ("/up,/down*", ("/up", "/down*")),
    "metrics_path": ("/prometheus", "/prometheus"),
    "rewrite_traceparent": ("False", False),
    "upstream": ("no", False),
    "upstream_urls": ("http://vllm:8000/*, /ask", ("http://vllm:8000/*", "/ask")),
    "ledger_in_band": ("off", False),
    "latency_attributes": ("OFF", False),
    "max_attribute_bytes": (" 64 ", 64),
    "max_body_bytes": ("0", 0),
    "capture_content": ("true", True),
    "max_content_bytes": ("100", 100),
    "user_key": (" a key that is long ", "a key that is long"),
    "cached_share": ("0.5", 0.5),
    "device": ("H100 SXM", "H100 SXM"),
    "model_config": ("./model", "./model"),
    "tensor_parallel": ("8", 8),
    "slow_ttft": ("2.5", 2.5),
    "retrieval_stores": ("qdrant, my_store", ("qdrant", "my_store")),
    "max_edge_seconds": ("0", 0.0),
    "flight_recorder": ("50", 50),
    "flight_recorder_path": ("/flights", "/flights"),
    "tail_share": ("0.05", 0.05),
    "shutdown_timeout": ("2", 2.0),
    "otlp_endpoint": ("http://collector:4318", "http://collector:4318"),
    "otlp_protocol": ("grpc", "grpc"),
    "benchmark": (" bench.json ", "bench.json"),
}

BAD = {
    "enabled": [1, "true", None],
    "provider": ["", "  ", 5, None],
    "served_models": ["a", 5, None, [5], [""], {"a": 1}],
    "phases": ["rerank", (None,)],
    "routes": ["/a=b", None, [("/a", "b")], {"a": "chat"}, {"/a": ""}, {"/a": 5}, {5: "chat"}],
    "quiet_paths": ["/health", 5],
    "metrics_path": ["metrics", 0, None, False, b"/metrics"],
    "rewrite_traceparent": [0, "no"],
    "upstream": [1, "on", None],
    "upstream_urls": ["/ask", 5, None, ["vllm:8000"], [""], ["/ask", 5]],
    "ledger_in_band": [0, "yes", None],
    "latency_attributes": [None, "yes"],
    "max_attribute_bytes": [0, -1, 1.5, 1024.0, "1", True, None, float("nan")],
    "max_body_bytes": [-1, 0.5, "1", None],
    "capture_content": [1, "true", None],
    "max_content_bytes": [0, 63, 65_537, 100.0, "100", None, True],
    "user_key": ["", "short", 5, b"a key that is long", " " * 20],
    "cached_share": [0, 1.1, "0.5", None, float("nan"), True],
    "device": ["", 5],
    "model_config": [" ", 5],
    "tensor_parallel": [0, -1, 1.5, "2", None, True],
    "slow_ttft": [0, -1, "2", float("nan"), True, 3601],
    "retrieval_stores": ["qdrant", 5, [""], [5], None],
    "max_edge_seconds": [-1, "5", None, False, float("inf"), float("nan"), 3601],
    "flight_recorder": [-1, 0.5, "5", None, True, 10_001],
    "flight_recorder_path": ["flights", "", None],
    "tail_share": [-0.1, 1.1, "0.5", None, float("nan"), True, False],
    "shutdown_timeout": [0, -1, "5", None, float("inf"), float("nan"), 3601],
    "otlp_endpoint": ["", " ", 5, b"http://x"],
    "otlp_protocol": ["http", "", 5, [], {}],
    "benchmark": ["", " ", 5, True],
}

BAD_TEXT = {
    "enabled": ("maybe", "use true or false"),
    "routes": (
        "/ask",
        "use path=operation, such as /ask=chat, separated by commas",
    ),
    "metrics_path": ("metrics", "begin the path with / or leave it empty"),
    "rewrite_traceparent": ("2", "use true or false"),
    "upstream": ("y", "use true or false"),
    "upstream_urls": (
        "vllm:8000",
        "each pattern begins with / for a path, or with a scheme, such as http://vllm:8000/*",
    ),
    "latency_attributes": ("y", "use true or false"),
    "max_attribute_bytes": ("1e3", "use a whole number"),
    "max_body_bytes": ("-1", "use a whole number of bytes, 0 or more"),
    "capture_content": ("span_only", "use true or false"),
    "max_content_bytes": ("1000000", "use a whole number from 64 to 65536"),
    "cached_share": ("most", "use a number"),
    "tensor_parallel": ("two", "use a whole number"),
    "slow_ttft": ("never", "use a number"),
    "flight_recorder": ("-1", "use a whole number up to 10000"),
    "flight_recorder_path": ("flights", "begin the path with /"),
    "tail_share": ("1.5", "use a share from 0 to 1"),
    "shutdown_timeout": ("inf", "use seconds above 0, up to 3600"),
    "otlp_protocol": ("http", "use grpc or http/protobuf"),
}

NAMES = [field.name for field in dataclasses.fields(Settings)]


def test_the_tables_of_this_page_are_whole():
    """Every setting is tried with good values and with bad ones."""
    assert NAMES == list(GOOD) == list(BAD)


@pytest.mark.parametrize("name", NAMES)
def test_a_setting_is_read_from_its_variable(name):
    """`LLM_TRACE_<NAME>` gives the value, and only that setting changes."""
    text, value = GOOD[name]

    settings = Settings.from_env({f"LLM_TRACE_{name.upper()}": text})

    assert {**dataclasses.asdict(Settings()), name: value} == dataclasses.asdict(settings)


@pytest.mark.parametrize("name", NAMES)
def test_a_keyword_beats_the_variable(name):
    """What is said in code wins."""
    text, value = GOOD[name]
    other = getattr(Settings(), name)

    settings = Settings.from_env({f"LLM_TRACE_{name.upper()}": text}, **{name: other})

    assert other == getattr(settings, name) != value


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_says_what_it_does(name):
    """A sentence for the reference page."""
    doc = next(f for f in dataclasses.fields(Settings) if f.name == name).metadata["doc"]

    assert doc.endswith(".")


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, values in BAD.items() for v in values])
def test_a_bad_value_is_explained(name, value):
    """Whatever its type, the error names the setting and the value, and gives advice."""
    with pytest.raises(SettingsError) as raised:
        Settings(**{name: value})

    start, _, advice = str(raised.value).partition(" cannot be used: ")
    shown = HIDDEN if name in SECRETS else repr(value)
    assert f"setting {name}={shown}" == start
    assert len(advice) > 10
    assert advice.endswith(".")


@pytest.mark.parametrize("name", BAD_TEXT)
def test_a_bad_variable_is_explained(name):
    """The error names the variable as it was written, and gives advice."""
    text, advice = BAD_TEXT[name]
    variable = f"LLM_TRACE_{name.upper()}"

    with pytest.raises(SettingsError) as raised:
        Settings.from_env({variable: text})

    assert f"{variable}={text!r} cannot be used: {advice}." == str(raised.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("provider", "vll\udcff"),
        ("served_models", "a,b\udcff"),
        ("phases", "rerank,\udcff"),
        ("routes", "/a=\udcff"),
    ],
)
def test_a_label_that_no_page_could_hold_is_refused(name, text):
    """Bytes that are no UTF-8: once in a label, they would cost the host its whole /metrics."""
    with pytest.raises(SettingsError, match=f"^LLM_TRACE_{name.upper()}=.* cannot be used: "):
        Settings.from_env({f"LLM_TRACE_{name.upper()}": text})


@pytest.mark.parametrize("text", ["", "  "])
@pytest.mark.parametrize("name", NAMES)
def test_an_empty_variable_is_unset(name, text):
    """As everywhere in OpenTelemetry, but for the settings of which none is a choice."""
    none = {"metrics_path": "", "quiet_paths": (), "retrieval_stores": ()}

    settings = Settings.from_env({f"LLM_TRACE_{name.upper()}": text})

    assert none.get(name, getattr(Settings(), name)) == getattr(settings, name)


@pytest.mark.parametrize("text", ["1", "true", "YES", "On"])
def test_true_is_said_in_many_ways(text):
    """Variables of other tools use any of these."""
    assert Settings.from_env({"LLM_TRACE_ENABLED": text}).enabled is True


@pytest.mark.parametrize(
    ("environ", "given", "message"),
    [
        (
            {"LLM_TRACE_SERVED_MODEL": "a"},
            {},
            (
                "environment variable LLM_TRACE_SERVED_MODEL is unknown: "
                "did you mean LLM_TRACE_SERVED_MODELS?"
            ),
        ),
        ({}, {"enable": True}, "setting 'enable' is unknown: did you mean enabled?"),
        (
            {},
            {"x": 1},
            f"setting 'x' is unknown: known are {', '.join(sorted(NAMES))}.",
        ),
        (
            {"LLM_TRACE_X": "1"},
            {},
            "environment variable LLM_TRACE_X is unknown: known are "
            + ", ".join(f"LLM_TRACE_{n.upper()}" for n in sorted(NAMES))
            + ".",
        ),
    ],
)
def test_an_unknown_name_suggests_the_near_one(environ, given, message):
    """A typing error is found at start, and the known names are said."""
    with pytest.raises(SettingsError) as raised:
        Settings.from_env(environ, **given)

    assert message == str(raised.value)


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        *((name, "x") for name in FOREIGN),
        ("OTEL_SERVICE_NAME", "x"),
        ("LLM_TRACER", "x"),
        ("LLM_TRACE_SERVICE_HOST", "10.0.0.7"),
        ("LLM_TRACE_SERVICE_PORT", "80"),
        ("LLM_TRACE_SERVICE_PORT_HTTP", "80"),
        ("LLM_TRACE_PORT", "tcp://10.0.0.7:80"),
        ("LLM_TRACE_PORT_80_TCP", "tcp://10.0.0.7:80"),
        ("LLM_TRACE_PORT_80_TCP_ADDR", "10.0.0.7"),
        ("LLM_TRACE_DEMO_SERVICE_HOST", "10.0.0.7"),
        ("LLM_TRACE_DEMO_PORT_53_UDP_PROTO", "udp"),
    ],
)
def test_variables_of_others_are_not_ours(variable, text):
    """Our commands' own, and those that Kubernetes sets for a Service called llm-trace."""
    assert Settings() == Settings.from_env({variable: text})


def test_a_variable_that_only_looks_like_a_service_is_unknown():
    """A guess at a setting is not passed over in silence."""
    with pytest.raises(SettingsError, match="LLM_TRACE_METRICS_PORT is unknown"):
        Settings.from_env({"LLM_TRACE_METRICS_PORT": "9090"})


def test_the_environment_is_the_processs_unless_given(monkeypatch):
    """Without an argument the real variables are read."""
    monkeypatch.setenv("LLM_TRACE_PROVIDER", "sglang")

    assert Settings.from_env().provider == "sglang"


def test_settings_are_frozen():
    """Nothing can change them once they are checked, nor what they were made from."""
    models, routes = ["a"], {"/ask": "chat"}
    settings = Settings(served_models=models, routes=routes)

    models.append("b")
    routes["/other"] = "chat"

    assert (("a",), {"/ask": "chat"}) == (settings.served_models, settings.routes)
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.enabled = False


def test_settings_are_given_by_name():
    """There is no order of arguments to get wrong."""
    with pytest.raises(TypeError):
        Settings(True)


def test_the_error_is_ours_and_a_value_error():
    """It can be caught either way."""
    assert issubclass(SettingsError, LlmTraceError)
    assert issubclass(SettingsError, ValueError)


def test_probes_are_quiet_by_default():
    """The default names the probes, docs and model lists of common servers."""
    assert QUIET_PATHS == Settings().quiet_paths


# --- what is kept of people -----------------------------------------------------------------------


def test_a_secret_is_never_shown():
    """Neither by the settings themselves nor by the error that refuses it."""
    word = "hunter2"
    with pytest.raises(SettingsError) as raised:
        Settings.from_env({"LLM_TRACE_USER_KEY": word})

    assert str(raised.value) == (
        "LLM_TRACE_USER_KEY=(not shown) cannot be used: use a secret of at least 16 characters."
    )
    assert word * 3 not in repr(Settings(user_key=word * 3))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("true", True),
        ("TRUE", True),
        ("SPAN_ONLY", True),
        ("span_and_event", True),
        ("false", False),
        ("EVENT_ONLY", False),
        ("NO_CONTENT", False),
        ("", False),
    ],
)
def test_the_standard_variable_says_whether_content_is_captured(text, expected):
    """In its old words and its new ones; content that belongs into events is not for spans."""
    assert expected is Settings.from_env({CAPTURE: text}).capture_content


def test_our_own_word_on_content_beats_the_standard_one():
    """Who wants it elsewhere and not here can say so, and the other way round."""
    environ = {CAPTURE: "true", "LLM_TRACE_CAPTURE_CONTENT": "false"}

    assert not Settings.from_env(environ).capture_content
    assert Settings.from_env(environ, capture_content=True).capture_content


def test_a_standard_variable_that_says_nothing_known_is_refused():
    """Whether prompts leave the process is never guessed."""
    with pytest.raises(SettingsError) as raised:
        Settings.from_env({CAPTURE: "maybe"})

    assert str(raised.value).startswith(f"{CAPTURE}='maybe' cannot be used: use true or false")
