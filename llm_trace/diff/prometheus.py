"""Asks a Prometheus, or anything with its query API, how much counters grew in each block."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPException
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from llm_trace.address import http_url
from llm_trace.diff.errors import DiffError
from llm_trace.diff.side import Side

_TIMEOUT: Final = 60.0
_MOST: Final = 1 << 26
"""Bytes of an answer that are read."""
_SHOWN: Final = 300
_GUARDED: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
_REMEMBERED: Final = "6h"
"""How long scrapes may have failed before a counter that is found again counts as a new one."""

Growth = dict[tuple[str, ...], list[float]]
"""By the values of the labels that were asked for: the growth in each block."""


Row = tuple[dict[str, str], list[tuple[float, float]]]
"""Labels, and values by Unix seconds."""


@dataclass(frozen=True, slots=True)
class Prometheus:
    """One server.

    Raises:
        LlmTraceError: The URL is none that can be asked.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        http_url(self.url, such_as="http://127.0.0.1:9090", key_option="--token-env")

    def growth(self, metric: str, side: Side, blocks: int, *by: str) -> Growth:
        """How much the counter `metric` grew on `side`, block by block.

        Raises:
            DiffError: The server cannot be asked, or refuses.
        """
        step = side.seconds / blocks
        expr = grown(f"{metric}{{{side.matchers}}}", step, *by)
        # Half a step later than the last block's end, which rounding may put beyond the window's.
        window = {"start": side.start + step, "end": side.end + step / 2, "step": f"{step:.3f}"}
        growth: Growth = {}
        for labels, values in self._ask({"query": expr, **window}):
            key = tuple(labels.get(name, "") for name in by)
            per_block = growth.setdefault(key, [0.0] * blocks)
            for at, value in values:
                block = round((at - side.start) / step) - 1
                if 0 <= block < blocks and math.isfinite(value):
                    per_block[block] += value
        return growth

    def _ask(self, query: Mapping[str, Any]) -> list[Row]:
        document = self._post("/api/v1/query_range", query)
        try:
            return [_row(row) for row in document["data"]["result"]]
        except (KeyError, TypeError, ValueError):
            raise DiffError(f"{self.url} answers, but not as Prometheus does.") from None

    def _post(self, path: str, query: Mapping[str, Any]) -> Any:
        request = Request(self.url.rstrip("/") + path, urlencode(query).encode())  # noqa: S310 - the scheme is checked
        for name, value in self.headers.items():
            request.add_unredirected_header(name, value)  # a key is for this server alone
        try:
            with urlopen(request, timeout=_TIMEOUT) as answer:  # noqa: S310 - likewise
                return json.loads(answer.read(_MOST))
        except HTTPError as fault:
            said = fault.read(_SHOWN).decode(errors="replace").strip()
            hint = ". Name a token with --token-env." if fault.code in _GUARDED else ""
            raise DiffError(f"{self.url} answers {fault.code}: {said}{hint}") from None
        except (URLError, OSError, HTTPException) as fault:
            why = getattr(fault, "reason", None) or fault
            raise DiffError(
                f"{self.url} cannot be asked: {why}. Name the Prometheus with --prometheus."
            ) from None
        except (ValueError, RecursionError):
            raise DiffError(f"{self.url} answers, but not as Prometheus does.") from None


def _row(row: Any) -> Row:
    labels = {str(name): str(value) for name, value in dict(row["metric"]).items()}
    return labels, [(float(at), float(value)) for at, value in row["values"]]


def grown(selector: str, seconds: float, *by: str) -> str:
    """The PromQL of a counter's growth, in which a series that was born counts in full.

    `increase` sees nothing of a counter's first sample, and a rare phase begins with one. One that
    nobody scraped when the window began was not born in it, unless it begins anew below what it
    was.
    """
    window = f"{round(seconds * 1000)}ms"
    now = f"last_over_time({selector}[{window}])"
    known = f"last_over_time({selector}[{_REMEMBERED}] offset {window}) <= {now}"
    born = f"({now} unless {selector} offset {window} unless {known})"
    grew = f"{born} or increase({selector}[{window}])"
    return f"sum by ({', '.join(by)}) ({grew})" if by else f"sum({grew})"
