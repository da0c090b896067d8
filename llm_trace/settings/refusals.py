"""What is said of a setting that cannot be used: what was wrong, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from llm_trace.errors import SettingsError


def unusable(what: str, advice: str) -> SettingsError:
    """A value that is of no use, as it was given."""
    return SettingsError(f"{what} cannot be used: {advice}.")


def unknown(what: str, name: str, known: Iterable[str], prefix: str = "") -> SettingsError:
    """A name that is no setting's, and the nearest that is; with a `prefix`, as variables."""
    near = difflib.get_close_matches(name, known, n=1)
    shown = [f"{prefix}{k.upper()}" if prefix else k for k in near or sorted(known)]
    hint = f"did you mean {shown[0]}?" if near else f"known are {', '.join(shown)}."
    return SettingsError(f"{what} is unknown: {hint}")
