"""A real Prometheus over samples written beforehand: pages become blocks, rules are played over."""

from __future__ import annotations

import json
import re
import subprocess
from contextlib import contextmanager
from urllib.parse import urlencode
from urllib.request import ProxyHandler, build_opener

from board_files import DCGM_SAMPLE, GENERATED, VLLM_PAGE
from programs import free_port

START = 1_700_000_000
STEP = 30
"""Seconds between two pages."""

INSTANCES = {"app": "app:8000", "vllm": "vllm:8000", "dcgm": "gpu:9400"}
"""The scrape target of each job."""

_LINE = re.compile(r"([^\s{]+)(?:\{(.*)\})? (\S+)$")
NO_VALUE = 2**47
"""DCGM's own words for "nothing" are numbers from here on: they do not grow."""

_READY = "Server is ready to receive web requests."
_direct = build_opener(ProxyHandler({}))


def stamped(page, at, **target):
    """The samples of `page` as if scraped from `target` at the time `at`."""
    for line in page.splitlines():
        if line and not line.startswith("#"):
            name, labels, value = _LINE.match(line.partition(" # ")[0]).groups()
            pairs = [labels] if labels else []
            pairs += [f'{key}="{said}"' for key, said in target.items()]
            yield f"{name}{{{','.join(pairs)}}} {value} {at}"


def vllm_pages(number):
    """The recorded page of vLLM, grown in `number` even steps from nothing to what was recorded."""
    gauges = set(re.findall(r"# TYPE (\S+) gauge", VLLM_PAGE))
    return _grown(VLLM_PAGE, number, steady=gauges)


def dcgm_pages(number):
    """The page of DCGM's exporter, whose counters that do count grow in `number` even steps."""
    text = DCGM_SAMPLE.read_text()
    names = set(re.findall(r"^(\w+)\{", text, re.MULTILINE))
    counts = {name for name in names if name.endswith(("_VIOLATION", "_REPLAY_COUNTER"))}
    return _grown(text, number, steady=names - counts)


def _grown(text, number, steady):
    for step in range(1, number + 1):
        yield "\n".join(_part(line, step / number, steady) for line in text.splitlines())


def _part(line, part, steady):
    if line.startswith("#"):
        return line
    name, labels, value = _LINE.match(line).groups()
    kept = name in steady or float(value) > NO_VALUE
    grown = float(value) if kept else float(value) * part
    return f"{name}{{{labels}}} {grown}"


@contextmanager
def holding(folder, programs, **pages):
    """Run a Prometheus that scraped these pages of each job; a function to ask it.

    The function takes a query and how many seconds before the last scrape it is asked.
    """
    with scraped(folder, programs, **pages) as (url, until):
        yield lambda expr, back=0: _ask(url, expr, until - back)


@contextmanager
def scraped(folder, programs, **pages):
    """Run a Prometheus that scraped these pages of each job; its URL and the last scrape's time.

    It also holds what the recording rules would have recorded.
    """
    until = _lay(folder, programs, pages)
    with _serving(folder, programs) as url:
        _play_rules(folder, programs, url, until)
    with _serving(folder, programs) as url:
        yield url, until


def _lay(folder, programs, pages):
    """Make blocks of the pages; the time of the last."""
    samples = []
    for number, texts in enumerate(zip(*pages.values(), strict=True)):
        at = START + number * STEP
        for job, text in zip(pages, texts, strict=True):
            samples += stamped(text, at, job=job, instance=INSTANCES[job])
    page = folder / "samples.txt"
    page.write_text("\n".join([*samples, "# EOF", ""]))
    _promtool(programs, "tsdb", "create-blocks-from", "openmetrics", page, folder / "data")
    return at


def _play_rules(folder, programs, url, until):
    """Add what the recording rules would have recorded."""
    window = (f"--start={START}", f"--end={until}", f"--url={url}", f"--eval-interval={STEP}s")
    data = f"--output-dir={folder / 'data'}"
    rules = GENERATED / "rules.yaml"
    _promtool(programs, "tsdb", "create-blocks-from", "rules", *window, data, rules)


def _promtool(programs, *command):
    subprocess.run([programs / "promtool", *command], check=True, capture_output=True)


@contextmanager
def _serving(folder, programs):
    """Run Prometheus over the database in `folder`; its URL."""
    (folder / "prometheus.yml").write_text("")
    port = free_port()
    command = (
        programs / "prometheus",
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    )
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert any(_READY in line for line in process.stderr), "Prometheus ended at its start"
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.communicate()


def _ask(url, expr, at):
    """The samples that the query `expr` gives at the time `at`: labels and value."""
    query = urlencode({"query": expr, "time": at})
    with _direct.open(f"{url}/api/v1/query?{query}", timeout=30) as response:
        result = json.load(response)["data"]["result"]
    return [(sample["metric"], float(sample["value"][1])) for sample in result]
