"""Where OTLP goes: the specification's variables, our keywords, and what contradicts itself."""

from importlib.metadata import EntryPoint

import pytest

from llm_trace.errors import SettingsError
from llm_trace.observers import endpoint
from llm_trace.observers.endpoint import Endpoint, resolve

GENERIC = "OTEL_EXPORTER_OTLP_ENDPOINT"
SPECIFIC = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
PROTOCOL = "OTEL_EXPORTER_OTLP_PROTOCOL"
HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"
COMPRESSION = "OTEL_EXPORTER_OTLP_COMPRESSION"
TIMEOUT = "OTEL_EXPORTER_OTLP_TIMEOUT"
HTTP = "http/protobuf"


def traces(environ=None, **given):
    """The endpoint of spans."""
    return resolve("traces", environ or {}, **given)


def test_nothing_configured_is_nowhere():
    """Without an endpoint nothing is exported, whatever else is set."""
    assert traces() is None
    assert traces({PROTOCOL: "grpc", GENERIC: "  "}) is None


@pytest.mark.parametrize("given", ["http://h:4318", "http://h:4318/", "http://h:4318/v1/traces"])
def test_our_keyword_ends_at_one_url(given):
    """With or without the signal's path, and with or without a slash."""
    found = traces(endpoint=given)

    assert (found.url, found.protocol) == ("http://h:4318/v1/traces", HTTP)


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://h:4318?key=k", "http://h:4318/v1/traces?key=k"),
        ("http://h:4318/base/?key=k", "http://h:4318/base/v1/traces?key=k"),
        ("http://h:4318/v1/traces/?key=k", "http://h:4318/v1/traces?key=k"),
    ],
)
def test_the_path_stands_before_a_query(given, url):
    """Some backends take their key there; so it is not shown either."""
    found = traces(endpoint=given)

    assert found.url == url
    assert found.shown == url.replace("key=k", "***")


def test_the_variables_keep_their_meaning():
    """The generic one gets the signal's path, the signal's own is verbatim and wins."""
    generic = {GENERIC: "http://h:4318/base"}
    specific = {SPECIFIC: "http://t:4318/elsewhere", GENERIC: "http://h:4318"}

    assert traces(generic).url == "http://h:4318/base/v1/traces"
    assert resolve("metrics", generic).url == "http://h:4318/base/v1/metrics"
    assert traces(specific).url == "http://t:4318/elsewhere"
    assert resolve("metrics", specific).url == "http://h:4318/v1/metrics"


def test_our_keyword_beats_the_variables():
    """Both of them."""
    environ = {SPECIFIC: "http://t:4318", GENERIC: "http://g:4318", PROTOCOL: HTTP}
    found = traces(environ, endpoint="http://k:4317", protocol="grpc")

    assert (found.url, found.protocol) == ("http://k:4317", "grpc")


@pytest.mark.parametrize(
    ("environ", "protocol"),
    [
        ({GENERIC: "http://h:4317"}, "grpc"),
        ({GENERIC: "http://h:4318"}, HTTP),
        ({GENERIC: "http://h:9000"}, "grpc"),
        ({SPECIFIC: "http://h:9000/v1/traces/"}, HTTP),
        ({GENERIC: "http://h:9000", PROTOCOL: HTTP}, HTTP),
        ({GENERIC: "http://h:9000", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": HTTP}, HTTP),
        ({GENERIC: "https://h:4317", "OTEL_EXPORTER_OTLP_INSECURE": "false"}, "grpc"),
    ],
)
def test_the_protocol_is_said_or_told_by_port_and_path(environ, protocol):
    """Never by a part of the host's name; Python's default is gRPC."""
    assert traces(environ).protocol == protocol


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://h", "http://h:4317"),
        ("http://h:/", "http://h:4317/"),
        ("http://me:pw@[::1]", "http://me:pw@[::1]:4317"),
        ("http://h:80", "http://h:80"),
        ("https://h", "https://h"),
    ],
)
def test_grpc_without_a_port_goes_to_that_of_otlp(given, url):
    """gRPC's own default is 443, where nobody takes it without TLS."""
    assert url == traces(endpoint=given).url
    assert url == traces({SPECIFIC: given}).url


@pytest.mark.parametrize(
    ("environ", "sentence"),
    [
        ({GENERIC: "localhost:4317"}, "begin it with http:// or https://"),
        ({GENERIC: "grpc://h:4317"}, "begin it with http:// or https://"),
        ({GENERIC: "http://:4317"}, "begin it with http:// or https://"),
        ({GENERIC: "http://h:70000"}, "is no URL"),
        ({GENERIC: "http://[::1"}, "is no URL"),
        ({GENERIC: "http://h:4317", PROTOCOL: HTTP}, "has the port of grpc"),
        ({GENERIC: "http://h:4318", PROTOCOL: "grpc"}, "has the port of http/protobuf"),
        ({GENERIC: "http://h:4318", PROTOCOL: "http/json"}, "use grpc or http/protobuf"),
        (
            {GENERIC: "https://h:4317", "OTEL_EXPORTER_OTLP_INSECURE": "TRUE"},
            "use http:// or drop the variable",
        ),
        ({GENERIC: "http://h:4317", "OTEL_TRACES_EXPORTER": "otlp,zipkin"}, "Use otlp or none"),
        ({GENERIC: "http://h:4317", HEADERS: "api-key=abc%0A"}, "a line break"),
        ({GENERIC: "http://h:4317", HEADERS: "novalue"}, "must be name=value"),
        ({GENERIC: "http://h:4317", HEADERS: "a=1,=2"}, "must be name=value"),
        ({GENERIC: "http://h:4317", HEADERS: "a%20b=1"}, "over grpc a name is"),
        ({GENERIC: "http://h:4317", HEADERS: "a=%C3%A9"}, "a value ascii"),
        ({GENERIC: "http://h:4318", HEADERS: "a=1%0D%0Ab: 2"}, "a line break"),
        ({GENERIC: "http://h:4318", HEADERS: "a=%E6%A8%A1"}, "a value latin-1"),
        (
            {GENERIC: "https://h:4317", "OTEL_EXPORTER_OTLP_CERTIFICATE": "/nowhere.pem"},
            "CERTIFICATE='/nowhere.pem' cannot be used: there is no file",
        ),
        ({GENERIC: "http://h:4317", COMPRESSION: "zstd"}, "over grpc: use gzip or none"),
        ({GENERIC: "http://h:4317", COMPRESSION: "deflate"}, "over grpc: use gzip or none"),
        ({GENERIC: "http://h:4318", COMPRESSION: "br"}, "use gzip or deflate or none"),
        ({GENERIC: "http://h:4317", TIMEOUT: "10s"}, "use seconds above 0"),
        ({GENERIC: "http://h:4318", TIMEOUT: "nan"}, "use seconds above 0"),
        ({GENERIC: "http://h:4317", TIMEOUT: ""}, "use seconds above 0, or drop"),
        ({GENERIC: "http://h:4317", "OTEL_BSP_SCHEDULE_DELAY": "0"}, "above 0, or drop"),
        ({GENERIC: "http://h:4317", "OTEL_BSP_MAX_QUEUE_SIZE": "-1"}, "above 0, or drop"),
        ({GENERIC: "http://h:4317", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "0"}, "above 0, or drop"),
    ],
)
def test_contradictions_fail_at_start(environ, sentence):
    """With what is wrong and what to do, before anything was exported."""
    with pytest.raises(SettingsError, match=sentence):
        traces(environ)


@pytest.mark.parametrize(
    "environ",
    [
        {GENERIC: "http://h:4317", "OTEL_EXPORTER_OTLP_CERTIFICATE": "/nowhere.pem"},
        {GENERIC: "http://h:4317", COMPRESSION: "none", TIMEOUT: "0.5"},
        {GENERIC: "http://h:4318", COMPRESSION: "", TIMEOUT: ""},
        {GENERIC: "http://h:4318", HEADERS: "x-name=%C3%A9"},
        {GENERIC: "http://h:4317", "OTEL_BSP_MAX_QUEUE_SIZE": "many"},
        {GENERIC: "http://h:4317", "OTEL_METRIC_EXPORT_INTERVAL": "0"},
    ],
)
def test_what_the_exporters_can_use_is_no_fault(environ):
    """Or what the SDK has a default for, or what is of the other signal."""
    assert traces(environ).compression is None


def test_a_bad_variable_of_metrics_fails_at_start():
    """The SDK refuses an interval of 0 when the reader is made."""
    with pytest.raises(SettingsError, match="OTEL_METRIC_EXPORT_INTERVAL='0' cannot be used"):
        resolve("metrics", {GENERIC: "http://h:4317", "OTEL_METRIC_EXPORT_INTERVAL": "0"})


@pytest.mark.parametrize(
    ("text", "headers"),
    [
        ("authorization=Bearer abc", {"authorization": "Bearer abc"}),
        ("Authorization=Basic dXNlcjpwYXNz==", {"authorization": "Basic dXNlcjpwYXNz=="}),
        (" api-key = a%2Cb , tenant=x,", {"api-key": "a,b", "tenant": "x"}),
        ("", {}),
    ],
)
def test_headers_reach_the_exporter_whole(text, headers):
    """Spaces and padding are part of a value."""
    assert traces({GENERIC: "http://h:4317", HEADERS: text}).headers == headers


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://user:hunter2@collector:4318/v1", "https://***@collector:4318/v1"),
        ("https://hunter2@collector", "https://***@collector"),
        ("https://a@hunter2@collector", "https://***@collector"),
        ("user:hunter2@collector:4317", "***@collector:4317"),
        ("http://collector:4318/a@b", "http://collector:4318/a@b"),
        ("http://collector:4318", "http://collector:4318"),
    ],
)
def test_a_password_in_an_url_is_not_shown(url, shown):
    """Neither in what is said at start nor in the error that refuses it."""
    assert shown == Endpoint(url, "grpc").shown
    with pytest.raises(SettingsError) as raised:
        resolve("traces", {}, endpoint=url.replace("http", "ftp"))
    assert "hunter2" not in str(raised.value)


def test_an_empty_variable_switches_nothing_off():
    """OpenTelemetry's specification takes it for one that is not set."""
    assert traces({GENERIC: "http://h:4317", "OTEL_TRACES_EXPORTER": ""}) is not None


def test_secrets_are_not_shown():
    """Neither by a fault nor by the endpoint itself."""
    environ = {GENERIC: "http://h:4317", HEADERS: "api-key=tops,ecret"}
    with pytest.raises(SettingsError) as caught:
        traces(environ)
    shown = traces({GENERIC: "http://h:4317", HEADERS: "api-key=tops"})

    assert "ecret" not in str(caught.value)
    assert "tops" not in f"{caught.value} {shown!r}"


@pytest.mark.parametrize(
    ("name", "url", "protocol"),
    [
        ("otlp", "http://h:9000", "grpc"),
        ("otlp_proto_grpc", "http://h:9000", "grpc"),
        ("otlp_proto_http", "http://h:9000/v1/metrics", HTTP),
        ("console,otlp_proto_http", "http://h:9000/v1/metrics", HTTP),
    ],
)
def test_pythons_own_names_of_otlp_say_the_protocol(name, url, protocol):
    """As `opentelemetry-instrument` reads them, beside other exporters of its own."""
    environ = {GENERIC: "http://h:9000", "OTEL_METRICS_EXPORTER": name}

    found = resolve("metrics", environ)

    assert (found.url, found.protocol) == (url, protocol)


def test_an_installed_exporter_of_metrics_is_no_contradiction(monkeypatch):
    """It is for the SDK's own set-up; a name that nobody has is one."""
    point = EntryPoint("cloud", "cloud:Exporter", "opentelemetry_metrics_exporter")
    monkeypatch.setattr(endpoint, "entry_points", lambda group: [point] if group else [])

    assert resolve("metrics", {GENERIC: "http://h", "OTEL_METRICS_EXPORTER": "cloud"}) is None
    with pytest.raises(SettingsError, match="Use otlp or none"):
        resolve("metrics", {"OTEL_METRICS_EXPORTER": "cloud,clod"})
    with pytest.raises(SettingsError, match="Use otlp or none"):
        traces({"OTEL_TRACES_EXPORTER": "cloud"})


@pytest.mark.parametrize(
    "off",
    [
        {"OTEL_SDK_DISABLED": "true"},
        {"OTEL_TRACES_EXPORTER": "none"},
        {"OTEL_TRACES_EXPORTER": "prometheus"},
    ],
)
def test_telemetry_can_be_switched_off(off):
    """By the standard variables."""
    assert traces({GENERIC: "http://h:4317", **off}) is None
