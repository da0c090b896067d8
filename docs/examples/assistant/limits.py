"""How often one may ask: a bucket of tokens for each owner."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated

from fastapi import Depends, HTTPException, Request

from assistant.keys import Owner


class Buckets:
    """So many requests a minute for each name, saved up to one minute's worth."""

    def __init__(
        self,
        per_minute: int,
        now: Callable[[], float] = time.monotonic,  # noqa: TID251 - an app has its own clock
    ) -> None:
        self._size = per_minute
        self._now = now
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, name: str) -> float:
        """Take one; 0, or the seconds after which there is one again."""
        at = self._now()
        left, then = self._left.get(name, (float(self._size), at))
        left = min(float(self._size), left + (at - then) * self._size / 60)
        if left < 1:
            return (1 - left) * 60 / self._size
        self._left[name] = (left - 1, at)
        return 0


def admitted(request: Request, name: Owner) -> str:
    """An owner who has not asked too often; 429 says when to come again."""
    wait = request.app.state.buckets.take(name)
    if wait:
        raise HTTPException(429, "too many requests", {"retry-after": str(int(wait) + 1)})
    return name


Admitted = Annotated[str, Depends(admitted)]
