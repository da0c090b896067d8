"""The page of the boards shows each of them, in pictures that are there and small."""

from __future__ import annotations

import re
import struct

import pytest
from board_files import BOARDS, PANELS, ROOT

DOCS = ROOT.parent / "docs"
PAGE = (DOCS / "boards.md").read_text(encoding="utf-8")
PICTURES = sorted((DOCS / "images").glob("*.png"))


def test_the_page_has_each_board_with_its_picture():
    """Each board is a heading that is followed by its picture."""
    shown = re.findall(r"^## (.+)\n\n!\[\1\]\(images/(\w+)\.png\)$", PAGE, re.MULTILINE)

    assert {(board["title"], board["uid"].removeprefix("llm-trace-")) for board in BOARDS} == set(
        shown
    )
    assert {name for _, name in shown} == {picture.stem for picture in PICTURES}


def test_the_page_names_panels_that_exist():
    """What the page says to look at can be found on a board."""
    named = set(re.findall(r"(?<!\*)\*([^*\n]+)\*(?!\*)", PAGE))
    rows = {p["title"] for board in BOARDS for p in board["panels"] if p["type"] == "row"}

    assert named - {panel["title"] for _, panel in PANELS} - rows <= {"All"}


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.stem)
def test_a_picture_is_small_and_as_wide_as_all(picture):
    """A picture is a PNG of the usual width and below 300 kB."""
    content = picture.read_bytes()
    width, _ = struct.unpack(">II", content[16:24])

    assert content.startswith(b"\x89PNG")
    assert 1400 == width
    assert len(content) <= 300_000
