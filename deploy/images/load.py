#!/usr/bin/env python3
"""Put a bounded load on the demo's app: so many rounds, then silence until it is started again.

LOAD_ROUNDS rounds with LOAD_PAUSE seconds between them. Each is the demo's own load, LOAD_REQUESTS
of each class with LOAD_CONCURRENCY at once, and one client that leaves before its answer. `--check`
says by its status whether the load is alive. The app is on this host's port LOAD_PORT.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

from llm_trace.core.clock import SYSTEM
from llm_trace.demo.client import TIMEOUT, ask
from llm_trace.demo.load import Plan, Target, acts, run

if TYPE_CHECKING:
    from llm_trace.demo.client import Answer

PULSE: Final = Path(os.environ.get("LOAD_PULSE", "/tmp/load.pulse"))  # noqa: S108 - a tmpfs of its own
DONE: Final = "done"
PATIENCE: Final = 0.2
"""Seconds for which the client waits that then leaves."""
LIMITS: Final = {
    "LOAD_PORT": (8000, 65535),
    "LOAD_ROUNDS": (20, 1000),
    "LOAD_PAUSE": (30, 3600),
    "LOAD_REQUESTS": (4, 500),
    "LOAD_CONCURRENCY": (8, 64),
}
"""The default of each setting, and its highest value."""


def main(arguments: list[str]) -> int:
    """Run the load, or check on one that runs."""
    if arguments == ["--check"]:
        return check()
    try:
        settings = {name: setting(name) for name in LIMITS}
    except ValueError as fault:
        return say(str(fault))
    target = Target(settings["LOAD_PORT"], os.environ["DEMO_API_KEY"])
    plan = Plan(settings["LOAD_REQUESTS"], settings["LOAD_CONCURRENCY"])
    for number in range(1, settings["LOAD_ROUNDS"] + 1):
        answers = asyncio.run(one_round(plan, target))
        good = sum(answer.ok for answer in answers)
        say(f"round {number} of {settings['LOAD_ROUNDS']}: {good} of {len(answers)} answered")
        if not good:
            return say("nothing was answered")
        rest(settings["LOAD_PAUSE"])
    PULSE.write_text(DONE, encoding="utf-8")
    say("all rounds are done")
    threading.Event().wait()
    return 0


def setting(name: str) -> int:
    """Return one number from the environment, within its limits."""
    default, highest = LIMITS[name]
    text = os.environ.get(name) or str(default)
    if not (text.isdecimal() and 1 <= int(text) <= highest):
        raise ValueError(f"{name}={text} cannot be used: give a number from 1 to {highest}")
    return int(text)


async def one_round(plan: Plan, target: Target) -> list[Answer]:
    """Ask everything once; the impatient client comes last."""
    beat()
    answers = await run(plan, target, lambda _: beat())
    crowd, _ = acts(plan)[-1]
    impatient = ask(target.port, target.api_key, "impatient", crowd[0].body)
    try:
        await asyncio.wait_for(impatient, PATIENCE)
    except asyncio.TimeoutError:
        say("the impatient client left")
    return answers


def rest(seconds: int) -> None:
    """Wait between two rounds, alive all the time."""
    for _ in range(seconds):
        beat()
        threading.Event().wait(1)


def beat() -> None:
    """Leave a sign of life; the clock is the host's, so that another process can compare it."""
    PULSE.write_text(str(SYSTEM.monotonic_ns()), encoding="utf-8")


def check() -> int:
    """0 when the last sign of life is younger than the longest that one answer may take."""
    try:
        pulse = PULSE.read_text(encoding="utf-8")
    except OSError:
        return 1
    return 0 if pulse == DONE else int(SYSTEM.monotonic_ns() - int(pulse or 0) > 2 * TIMEOUT * 1e9)


def say(what: str) -> int:
    """Write one line; the status of a fault."""
    sys.stderr.write(f"load: {what}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
