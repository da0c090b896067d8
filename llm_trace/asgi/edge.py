"""The way to us: what the proxy before us says of when it had the request.

`X-Request-Start` is what nginx, HAProxy, Apache and the platforms write: `t=` or nothing, then
seconds, milliseconds, microseconds or nanoseconds since 1970, told apart by their size. It is
another host's wall clock, so the difference to ours is reported apart and never enters the ledger.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from llm_trace.core import faults

HEADER: Final = b"x-request-start"

_STAMP: Final = re.compile(rb"\s*(?:t=)?(\d{1,19})(?:\.(\d{1,9})\d*)?\s*(?:$|[,;])", re.ASCII)
_UNITS: Final = (
    (10**17, 1),
    (10**14, 1_000),
    (10**11, 1_000_000),
    (10**8, 1_000_000_000),
)
"""From this number on, what one of it is in ns; each is a date between 1973 and 5138."""


def edge_of(headers: Iterable[tuple[bytes, bytes]], received: int, most: int) -> int | None:
    """Ns from the proxy's stamp to `received`; None without a stamp, or with one not believed.

    The first header, and in it the first value, is the outermost proxy's. One that cannot be read,
    lies in the future or is too old is counted as a dropped sample.

    Args:
        headers: The request's headers.
        received: When it was here, Unix ns.
        most: A longer way is not believed, ns; 0: nobody's stamp is.
    """
    if not most:
        return None
    for name, value in headers:
        if name == HEADER:
            return _believed(value, received, most)
    return None


def _believed(value: bytes, received: int, most: int) -> int | None:
    sent = stamp_of(value)
    if sent is None:
        faults.drop("edge_unreadable")
    elif sent > received:
        faults.drop("edge_negative")
    elif received - sent > most:
        faults.drop("edge_over_limit")
    else:
        return received - sent
    return None


def stamp_of(value: bytes) -> int | None:
    """The first stamp in `value`, Unix ns; None where there is none."""
    found = _STAMP.match(value)
    if found is None:
        return None
    whole, part = int(found[1]), found[2] or b""
    for least, unit in _UNITS:
        if whole >= least:
            return whole * unit + int(part.ljust(9, b"0")) * unit // 10**9
    return None
