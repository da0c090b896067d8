"""The pages of docs/ agree with the code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

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


def test_links_between_pages_lead_somewhere():
    """Each relative link of README and docs names a file of the repository."""
    broken = [
        f"{page.name}: {target}"
        for page in [ROOT / "README.md", *DOCS.glob("*.md")]
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]

    assert broken == []
