"""The pages of docs/ agree with the code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from llm_trace import semconv

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def all_pages() -> str:
    """The text of README and every page."""
    pages = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
    return "\n".join(page.read_text(encoding="utf-8") for page in pages)


def test_reference_tables_are_up_to_date():
    """The tables of the pages are what `docs/reference.py` makes of the code now."""
    ran = subprocess.run(
        [sys.executable, str(DOCS / "reference.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )

    assert (0, "") == (ran.returncode, ran.stderr)


def test_every_attribute_of_ours_is_documented():
    """Each `llm_trace.*` attribute that a span can carry is named on a page."""
    text = all_pages()
    names = [
        value
        for name, value in vars(semconv).items()
        if name.isupper() and isinstance(value, str) and value.startswith("llm_trace.")
    ]
    missing = [n for n in names if n.rstrip(".") not in text and n.replace(".", "_") not in text]

    assert missing == []


FOLDERS = (ROOT, DOCS, *(ROOT / "dashboards" / part for part in (".", "runbooks", "render")))
PAGES = [page for folder in FOLDERS for page in sorted(folder.glob("*.md"))]


def anchors(page: Path) -> set[str]:
    """What a link to a heading of `page` may name, as GitHub makes it."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path):
    """Each relative link names a file of the repository, and a heading of it where it names one."""
    broken = []
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", page.read_text(encoding="utf-8")):
        name, _, heading = target.partition("#")
        file = page.parent / name if name else page
        if not file.exists() or (heading and heading not in anchors(file)):
            broken.append(target)

    assert broken == []
