"""How wide the demo draws: its table has a column for each class of request."""

from __future__ import annotations

from typing import Final

WIDTH: Final = 100
