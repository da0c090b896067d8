"""Finds the Python that has vLLM, which is rarely the one that runs the demo."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from llm_trace.demo.errors import DemoError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

VARIABLE: Final = "LLM_TRACE_VLLM_PYTHON"
BESIDE: Final = Path(".venv-vllm/bin/python")
_PROBE: Final = (
    "import importlib.metadata as m, importlib.util as u\n"
    "missing = [n for n in ('vllm', 'llm_trace') if u.find_spec(n) is None]\n"
    "print(','.join(missing) or m.version('vllm'))\n"
)
_SECONDS: Final = 60


def find(asked: str | None, environ: Mapping[str, str]) -> tuple[Path, str] | None:
    """Return a Python with vLLM and vLLM's version; None when none was named and none is there.

    One that was named, by option or variable, has to work: the error says why it does not.
    """
    for python, named_by in _candidates(asked, environ):
        answer = probe(python)
        if answer[:1].isdigit():
            return python, answer
        if named_by:
            raise DemoError(
                f"{python}, named by {named_by}, cannot serve vLLM ({answer}): build one with "
                "`make vllm`, or use --simulate for a simulated engine."
            )
    return None


def _candidates(asked: str | None, environ: Mapping[str, str]) -> Iterator[tuple[Path, str | None]]:
    if asked:
        yield Path(asked), "--vllm-python"
        return
    if environ.get(VARIABLE):
        yield Path(environ[VARIABLE]), VARIABLE
        return
    if BESIDE.is_file():
        yield BESIDE, None
    if importlib.util.find_spec("vllm"):
        yield Path(sys.executable), None


def probe(python: Path) -> str:
    """Ask a Python for its vLLM's version; anything that is not a version says what is wrong."""
    try:
        done = subprocess.run(  # noqa: S603 - our own command, no shell
            [os.path.abspath(python), "-c", _PROBE],  # noqa: PTH100 - resolving would leave the venv
            capture_output=True,
            check=False,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as fault:
        return str(fault)
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
    answer = done.stdout.strip()
    return answer if answer[:1].isdigit() else f"no module {answer.replace(',', ' and no ')}"
