"""Writes `docs/images/`: each board, drawn from a real Prometheus that holds a driven incident.

python -m dashboards.render [BOARD ...]

Needs Node 20, Chromium, and a Prometheus, which Debian has (`nodejs npm chromium prometheus`).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
BOARDS: Final = ROOT / "dashboards" / "generated" / "boards"
IMAGES: Final = ROOT / "docs" / "images"
TESTS: Final = (ROOT / "tests" / "dashboards", ROOT / "tests" / "end_to_end")
"""Where the traffic and the Prometheus come from: pictures show what the tests check."""

DRAWN: Final = ("ttft", "engine", "gpu", "delivery", "slow", "own")

QUIET: Final = ("Internal errors", "Spans dropped", "Samples refused")
"""Panels that are empty on a good day, which the pictures show."""

LIMIT: Final = 20
"""Rows of a table, as the boards ask for."""

WIDTH: Final = 1400
LARGEST: Final = 300_000
"""Bytes of a picture, so that the repository stays small."""


Find = Callable[[str], list[dict[str, Any]]]
"""Finds traces by TraceQL: the rows of a table."""


def wanted(board: str, until: int, shown: int, find: Find) -> Mapping[str, Any]:
    """What the page is told to draw."""
    name = f"llm-trace-{board}.json"
    drawn = json.loads((BOARDS / name).read_text(encoding="utf-8"))
    asked = {
        panel["title"]: panel["targets"][0] for panel in drawn["panels"] if panel["type"] == "table"
    }
    everything = dict.fromkeys(("$job", "$model", "$host", "$gpu"), ".*")
    windows = {"$__rate_interval": "2m", "$__range": f"{shown}s"}
    return {
        "board": drawn,
        "traces": {title: find(target["query"]) for title, target in asked.items()},
        "from": until - shown,
        "to": until,
        "step": 30,
        "variables": everything | windows,
    }


@contextmanager
def incident() -> Iterator[tuple[str, int, int, Find]]:
    """Run a Prometheus that scraped the incident: its URL, the end, the seconds to show, traces."""
    sys.path[:0] = [str(folder) for folder in TESTS]
    story, prometheus = import_module("board_story"), import_module("board_prometheus")
    programs = import_module("prometheus_programs").find_programs(ROOT / ".cache" / "prometheus")
    if programs is None:
        raise SystemExit("render: there is no Prometheus: install Debian's package `prometheus`")
    pages, roots = story.told()
    with (
        tempfile.TemporaryDirectory() as folder,
        prometheus.scraped(Path(folder), programs, **pages) as (url, until),
    ):
        yield url, until, story.SHOWN, lambda query: rows(query, roots, until - story.SHOWN)


def rows(query: str, roots: list[Any], since: int) -> list[dict[str, Any]]:
    """The rows of a table: no Tempo is at hand, so the tests' stand-in for it finds them."""
    traces = import_module("board_traces")
    recent = [root for root in roots if root.at > since]
    found, columns = traces.find(query.replace("$model", ".*"), recent)
    return [
        {
            "Trace ID": f"{root.trace:032x}",
            "Start time": root.at * 1000,
            "Name": root.name,
            "Duration": root.seconds * 1e9,
            **{name: root.attributes.get(name) for name in columns},
        }
        for root in found[-LIMIT:][::-1]
    ]


def program(*names: str) -> str:
    """The first of these programs that is there."""
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        raise SystemExit(f"render: there is none of {', '.join(names)}: install one")
    return found


def build() -> None:
    """Install the pinned packages where they are missing, and build the page."""
    npm = program("npm")
    if not (HERE / "node_modules").is_dir():
        subprocess.run([npm, "ci"], cwd=HERE, check=True)  # noqa: S603 - our own lock file
    subprocess.run([npm, "run", "--silent", "build"], cwd=HERE, check=True)  # noqa: S603 - likewise


def shoot(names: list[str]) -> list[dict[str, Any]]:
    """Draw the boards; each picture's file and the titles of its empty panels."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    with incident() as (url, until, shown, find):
        pictures = [
            {"file": str(IMAGES / f"{name}.png"), "wanted": wanted(name, until, shown, find)}
            for name in names
        ]
        job = {
            "chromium": program("chromium", "chromium-browser", "google-chrome"),
            "prometheus": url,
            "width": WIDTH,
            "pictures": pictures,
        }
        command = [program("node"), str(HERE / "shoot.mjs")]
        done = subprocess.run(  # noqa: S603 - our own script
            command, input=json.dumps(job), stdout=subprocess.PIPE, text=True, check=True
        )
    drawn: list[dict[str, Any]] = json.loads(done.stdout)
    return drawn


def complaints(picture: dict[str, Any]) -> Iterator[str]:
    """What is wrong with a picture: empty panels, or too many bytes."""
    file = Path(picture["file"])
    yield from (f"{file.name}: empty: {title}" for title in picture["empty"] if title not in QUIET)
    if file.stat().st_size > LARGEST:
        yield f"{file.name}: {file.stat().st_size} bytes are more than {LARGEST}"


def main(names: list[str]) -> int:
    """Run the command; the exit status."""
    if not set(names) <= set(DRAWN):
        sys.stderr.write(f"render: use `python -m dashboards.render [{' | '.join(DRAWN)} ...]`\n")
        return 2
    build()
    wrong = [each for picture in shoot(names or list(DRAWN)) for each in complaints(picture)]
    sys.stderr.writelines(f"render: {each}\n" for each in wrong)
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
