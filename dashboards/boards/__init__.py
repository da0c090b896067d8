"""The boards, one a file, in the order in which on-call opens them."""

from __future__ import annotations

from typing import Final

from dashboards.boards import delivery, engine, gpu, own, slow, ttft

ALL: Final = (
    ttft.BOARD,
    engine.BOARD,
    gpu.BOARD,
    delivery.BOARD,
    slow.BOARD,
    own.BOARD,
)
