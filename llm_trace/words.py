"""Words of the command line that several commands understand."""

from __future__ import annotations

import argparse
from collections.abc import Callable


def whole(most: int) -> Callable[[str], int]:
    """The type of an argument that is a whole number from 1 to `most`."""

    def number(text: str) -> int:
        if not (text.isascii() and text.isdigit()) or not 1 <= int(text[:20]) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} cannot be used: use 1 to {most}")
        return int(text)

    return number
