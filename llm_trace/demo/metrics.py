"""Both /metrics pages, fetched as Prometheus would, and a few lines of them as proof."""

from __future__ import annotations

import http.client
from typing import TYPE_CHECKING, Final

from llm_trace import semconv
from llm_trace.demo.ports import LOOPBACK
from llm_trace.demo.width import WIDTH

if TYPE_CHECKING:
    from collections.abc import Iterator

PATH: Final = "/metrics"
_PROOF: Final = (
    semconv.REQUESTS.prometheus,
    semconv.TIME_TO_FIRST_TOKEN.prometheus + "_count",
    semconv.TTFT_PHASE.prometheus,
)
_SECONDS: Final = 10


def get(port: int, path: str) -> tuple[int, str]:
    """GET a page over loopback, whatever proxies the environment names; 0 when nobody answers."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=_SECONDS)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return 0, ""
    finally:
        connection.close()


def highlights(page: str) -> list[str]:
    """Pick the largest sample of each of a few metrics."""
    return [line for name in _PROOF if (line := _largest(page, name))]


def _largest(page: str, name: str) -> str | None:
    samples = [line for line in page.splitlines() if line.startswith((name + "{", name + " "))]
    return max(samples, key=lambda line: float(line.rsplit(" ", 1)[1]), default=None)


def fit(line: str, width: int = WIDTH - 4) -> Iterator[str]:
    """Break a sample at its labels where it is too wide."""
    while len(line) > width:
        cut = line.rfind(",", 0, width) + 1 or width
        yield line[:cut]
        line = "    " + line[cut:]
    yield line
