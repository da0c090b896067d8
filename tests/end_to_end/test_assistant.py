"""The example app, as real processes: every way through it, told by one line of instrumentation."""

from __future__ import annotations

import ast
import hashlib
import sys
from pathlib import Path

import pytest
from programs import LOOPBACK, Program, clean_environment, eventually, free_port, listens
from scrape import scrape
from stamped_client import ask
from tap import SERVER, OtelTap
from uvicorn_server import exports_to
from vllm_server import MODEL as TINY

from llm_trace import semconv as s

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = DOCS / "examples"
CHAT = "/v1/chat/completions"
READER, EDITOR = ({"authorization": f"Bearer {name}-key"} for name in ("reader", "editor"))
HANDBOOK = {"title": "Holidays", "text": "Everybody has thirty days of holiday a year. " * 20}


def uvicorn(programs, folder, app, directory, **env):
    """A program served by uvicorn, ended with the test."""
    port = free_port()
    words = ["-m", "uvicorn", "--factory", app, "--app-dir", directory, "--host", LOOPBACK]
    log = folder / f"{app.partition(':')[0]}-{port}.log"
    program = Program([sys.executable, *words, "--port", port], log, env=clean_environment(**env))
    program.port = port
    programs.append(program)
    program.ready(lambda: listens(port), app)
    return program


def hashed(name):
    """A key as the operator writes it down."""
    return f"{hashlib.sha256(f'{name}-key'.encode()).hexdigest()}={name}"


class Assistant:
    """The app in front of an engine, with a handbook on its shelf."""

    def __init__(self, programs, folder, tap, engine, **more):
        env = {
            "ASSISTANT_ENGINE": engine,
            "ASSISTANT_MODEL": TINY,
            "ASSISTANT_DATABASE": str(folder / "assistant.db"),
            "ASSISTANT_KEYS": " ".join(map(hashed, ("reader", "editor"))),
            "ASSISTANT_EDITORS": "editor",
            **more,
        }
        env |= exports_to(tap.endpoint, OTEL_SERVICE_NAME="assistant")
        self.tap = tap
        self.program = uvicorn(programs, folder, "assistant.app:create", str(EXAMPLES), **env)
        assert self.ask("/documents", HANDBOOK, headers=EDITOR).status == 202

    def ask(self, path, body=None, *, headers=READER):
        """One exchange."""
        return ask(self.program.port, path, body, headers=headers)

    def chat(self, *texts, **more):
        """A conversation whose last word is a question; its answer and its root span."""
        roles = ["user", "assistant"] * len(texts)
        messages = [
            {"role": role, "content": text} for role, text in zip(roles, texts, strict=False)
        ]
        answer = self.ask(CHAT, {"messages": messages, "max_tokens": 8, "stream": True, **more})
        return answer, self.tap.root(answer.trace_id)

    def page(self):
        """Its metrics."""
        return scrape(self.program.port)


@pytest.fixture(scope="module")
def started():
    """A list: what the tests of this module share is ended with them."""
    programs = []
    yield programs
    for program in reversed(programs):
        program.stop()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the shared programs keep their files."""
    return tmp_path_factory.mktemp("assistant")


@pytest.fixture(scope="module")
def receiver(folder):
    """The receiver that all of them export to."""
    tap = OtelTap(folder)
    yield tap
    tap.stop()


@pytest.fixture(scope="module")
def engine(started, folder):
    """The URL of a simulated engine in another process, traced as engines are."""
    program = uvicorn(started, folder, "llm_trace.demo.simulated:create", ".")
    return f"http://{LOOPBACK}:{program.port}"


@pytest.fixture(scope="module")
def assistant(started, folder, receiver, engine):
    """The app in front of it."""
    return Assistant(started, folder, receiver, engine)


def told(root):
    """The phases of TTFT, those that took time."""
    prefix = s.TTFT_PHASE_PREFIX
    return {k.removeprefix(prefix): v for k, v in root.attributes.items() if k.startswith(prefix)}


def test_one_line_of_the_app_is_ours():
    """Nothing else in it knows llm_trace."""
    sources = sorted((EXAMPLES / "assistant").glob("*.py"))
    nodes = [
        node
        for source in sources
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8")))
    ]

    named = [node for node in nodes if isinstance(node, ast.Name) and node.id == "llm_trace"]
    calls = [ast.unparse(node) for node in nodes if isinstance(node, ast.Expr)]
    assert len(named) == 1
    assert "llm_trace.instrument(app)" in calls


def test_a_question_is_one_trace_from_client_to_engine(assistant):
    """The wait falls into the app's, the shelf's and the engine's own parts, and they add up."""
    answer, root = assistant.chat("How many days of holiday?")

    trace = assistant.tap.trace(answer.trace_id)
    (server,) = [span for span in trace if span.kind == SERVER]
    assert (server.parent_id, root.parent_id) == (answer.span_id, server.span_id)
    names = {span.name for span in trace}
    assert {"retrieval handbook", "chat tiny", "queue_wait", "prefill", "decode"} <= names
    phases = told(root)
    assert {"retrieval", "queue_wait", "prefill", "network"} <= phases.keys()
    assert sum(round(x * 1e9) for x in phases.values()) == round(root.attributes[s.TTFT] * 1e9)
    assert root.attributes[s.OUTCOME] == "ok"


def test_a_follow_up_is_rewritten_first(assistant):
    """That call only prepares the answer: its time is `generation`."""
    _, root = assistant.chat("How many days of holiday?", "Thirty.", "And for half a year?")

    assert told(root)["generation"] > 0
    calls = [x for x in assistant.tap.trace(root.trace_id) if x.name == "chat tiny"]
    assert len(calls) == 3  # the request itself and its two calls of the engine


def test_an_answer_in_one_piece(assistant):
    """The same for a client that does not stream: no TTFT, all the rest."""
    answer, root = assistant.chat("How many days of holiday?", stream=False)

    assert answer.document["choices"][0]["message"]["content"]
    assert s.TTFT not in root.attributes
    assert root.attributes[s.USAGE_OUTPUT_TOKENS] == 8


@pytest.mark.parametrize(
    ("status", "headers", "body"),
    [
        (401, {}, {"messages": [{"role": "user", "content": "x"}]}),
        (401, {"authorization": "Bearer wrong"}, {"messages": [{"role": "user", "content": "x"}]}),
        (422, READER, {"messages": []}),
    ],
)
def test_who_is_refused_is_rejected_in_admission(status, headers, body, assistant):
    """No key, a wrong one, or nonsense: the engine never hears of it."""
    answer = assistant.ask(CHAT, body, headers=headers)

    root = assistant.tap.root(answer.trace_id)
    assert status == answer.status
    found = (root.attributes[s.OUTCOME], root.attributes[s.LAST_PHASE])
    assert found == ("rejected", "admission")
    assert not any(span.name == "chat tiny" for span in assistant.tap.trace(answer.trace_id))


def test_who_asks_too_often_is_told_when_to_come_again(programs, tmp_path, receiver, engine):
    """429 is a rejection, counted, and no error."""
    assistant = Assistant(programs, tmp_path, receiver, engine, ASSISTANT_PER_MINUTE="2")
    question = {"messages": [{"role": "user", "content": "x"}], "stream": True, "max_tokens": 2}

    answers = [assistant.ask(CHAT, question) for _ in range(3)]

    assert [200, 200, 429] == [answer.status for answer in answers]
    assert int(answers[2].headers["retry-after"]) <= 31
    outcomes = assistant.page().by("llm_trace_outcome", s.REQUESTS.prometheus)
    assert outcomes == {"ok": 2, "rejected": 1}


def test_work_after_the_answer_is_done_and_not_counted(assistant):
    """The journal knows of the request; its time does not know of the journal."""
    before = assistant.ask("/usage").document
    _, root = assistant.chat("How many days of holiday?")

    def used():
        return assistant.ask("/usage").document

    eventually(lambda: used()["answered"] > before["answered"], "the answer was not noted")
    assert root.attributes[s.OUTCOME] == "ok"


def test_an_engine_that_is_gone_is_an_error_with_its_name(programs, tmp_path, receiver):
    """502 for the client, the exception's type for the operator."""
    assistant = Assistant(programs, tmp_path, receiver, f"http://{LOOPBACK}:{free_port()}")

    answer, root = assistant.chat("How many days of holiday?")

    assert (502, "error") == (answer.status, root.attributes[s.OUTCOME])
    call = next(
        x for x in receiver.trace(answer.trace_id) if x.name == "chat tiny" and not x.is_root
    )
    assert "ConnectError" in call.attributes[s.ERROR_TYPE]


def test_the_page_shows_what_this_app_is_really_told(assistant):
    """Each span and each phase of the page is one of a real trace."""
    page = (DOCS / "example.md").read_text(encoding="utf-8")
    drawn = page.partition("```trace\n")[2].partition("```")[0].splitlines()
    tabled = page.partition("| phase |")[2].partition("\n\n")[0].splitlines()[2:]
    _, root = assistant.chat("How many days of holiday?", "Thirty.", "And for half a year?")
    trace = assistant.tap.trace(root.trace_id)

    assert {line.strip(" ─│└├").rpartition("  ")[0].strip() for line in drawn} <= {
        span.name for span in trace
    }
    assert {line.split("|")[1].strip(" `") for line in tabled} <= told(root).keys()


@pytest.mark.vllm
def test_in_front_of_real_vllm(vllm, receiver, programs, tmp_path):
    """The same app, the same one line: vLLM's own queue and prefill are in its ledger."""
    assistant = Assistant(programs, tmp_path, receiver, f"http://{LOOPBACK}:{vllm.port}")

    _, root = assistant.chat("How many days of holiday?")

    phases = told(root)
    assert {"retrieval", "queue_wait", "prefill"} <= phases.keys()
    assert sum(round(x * 1e9) for x in phases.values()) == round(root.attributes[s.TTFT] * 1e9)
