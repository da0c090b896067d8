"""One run of the demo, from the choice of the engine to the exit status."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Final

from llm_trace.console import Progress, print_json, print_lines, stdout_style
from llm_trace.demo import screen
from llm_trace.demo.engine import Engine, check_model
from llm_trace.demo.errors import DemoError
from llm_trace.demo.interpreter import find
from llm_trace.demo.joined import join, root
from llm_trace.demo.load import Plan, Target, run, total
from llm_trace.demo.metrics import PATH, get, highlights
from llm_trace.demo.process import tail
from llm_trace.demo.results import Results, document
from llm_trace.demo.signals import terminable
from llm_trace.demo.stage import Options, Stage, stage

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable
    from pathlib import Path

    from llm_trace.demo.client import Answer
    from llm_trace.traces.spans import Span

_SPANS_SECONDS: Final = 15.0
_NO_VLLM: Final = "no Python with vLLM was found (`make vllm` builds one where there are wheels)."
_ASKED: Final = "asked for with --simulate."


def demo(args: argparse.Namespace) -> int:
    """Run it; 0 when every request was answered and every ledger arrived."""
    progress = Progress()
    engine = choose_engine(args)
    options = Options(args.app_port, args.engine_port, args.receiver_port, _model(args, engine))
    plan = Plan(args.requests, args.concurrency, args.max_tokens)
    if engine.simulated:
        progress.say(f"SIMULATED engine: {engine.why}")
    with terminable(), stage(engine, options, progress) as built:
        results = measure(engine, plan, built, progress)
        _show(results, as_json=args.json)
        if not results.good:
            _show_logs(built, progress)
        if args.keep:
            _keep(built, progress)
    return 0 if results.good else 1


def choose_engine(args: argparse.Namespace) -> Engine:
    """Take real vLLM where there is one, unless told to simulate."""
    if args.simulate:
        return Engine(None, "", _ASKED)
    found = find(args.vllm_python, os.environ)
    return Engine(*found, "") if found else Engine(None, "", _NO_VLLM)


def _model(args: argparse.Namespace, engine: Engine) -> Path | None:
    if args.model is None:
        return None
    model = check_model(args.model)
    if engine.simulated:
        raise DemoError("--model needs vLLM, and the engine is simulated: leave one of them out.")
    return model


def measure(engine: Engine, plan: Plan, built: Stage, progress: Progress) -> Results:
    """Put the load on and collect what client, app and engine say of it."""
    answers = asyncio.run(
        run(plan, Target(built.app_port, built.api_key), _Counter(plan, progress))
    )
    progress.update("collects the spans", force=True)
    good = [answer.trace_id for answer in answers if answer.ok]
    built.receiver.wait(good, lambda spans: _complete(spans, engine), _SPANS_SECONDS)
    joined = [join(answer, built.receiver.spans(answer.trace_id)) for answer in answers]
    progress.say(f"{len(answers)} requests made, {sum(one is not None for one in joined)} traced")
    return Results(
        engine=engine,
        plan=plan,
        answers=answers,
        joined=[one for one in joined if one],
        metrics=dict(_scrape(built)),
        dropped=built.receiver.dropped,
    )


class _Counter:
    """Show each answer as it comes."""

    def __init__(self, plan: Plan, progress: Progress) -> None:
        self._done = self._failed = 0
        self._total = total(plan)
        self._progress = progress

    def __call__(self, answer: Answer) -> None:
        self._done += 1
        self._failed += not answer.ok
        failed = f", {self._failed} FAILED" if self._failed else ""
        self._progress.update(f"load: {self._done} of {self._total} requests{failed}")


def _complete(spans: list[Span], engine: Engine) -> bool:
    """Wait for the engine's root first: the app's ends after it."""
    native = engine.simulated or any(span.name == "llm_request" for span in spans)
    return native and root(spans, engine.service) is not None and len(_roots(spans)) > 1


def _roots(spans: Iterable[Span]) -> list[Span]:
    return [span for span in spans if span.is_root]


def _scrape(built: Stage) -> Iterable[tuple[str, list[str]]]:
    for url, port in ((built.app_url, built.app_port), (built.engine_url, built.engine_port)):
        yield url + PATH, highlights(get(port, PATH)[1])


def _show(results: Results, *, as_json: bool) -> None:
    if as_json:
        print_json(document(results))
    else:
        print_lines(screen.render(results, stdout_style()))


def _show_logs(built: Stage, progress: Progress) -> None:
    """Show how each program's log ends: they go with the demo."""
    for log in sorted(built.work.glob("*.log")):
        progress.say(f"\nthe end of {log.name}:\n{tail(log)}")


def _keep(built: Stage, progress: Progress) -> None:
    """Wait for a signal, having said how to ask."""
    body = '{"messages":[{"role":"user","content":"What is yield?"}],"stream":true}'
    progress.say(f"\nkept running: app {built.app_url}, engine {built.engine_url}; Ctrl-C ends it")
    progress.say(f"  curl -N {built.app_url}/v1/chat/completions \\")
    progress.say(f"    -H 'Authorization: Bearer {built.api_key}' \\")
    progress.say(f"    -H 'Content-Type: application/json' -d '{body}'")
    progress.say(f"  curl {built.app_url}{PATH}      logs: {built.work}")
    threading.Event().wait()
