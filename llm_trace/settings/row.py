"""One row of the table of settings: its default, its kind of value, what it does."""

from __future__ import annotations

from dataclasses import Field, field
from typing import Any, Final

from llm_trace.settings.kinds import Kind
from llm_trace.settings.refusals import unusable

HIDDEN: Final = "(not shown)"


def row(default: Any, kind: Kind, doc: str) -> Any:
    """A setting."""
    about = {"kind": kind, "doc": doc}
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=about)
    return field(default=default, metadata=about)


def secret(kind: Kind, doc: str) -> Any:
    """A setting whose value is never shown, neither by `repr` nor by an error; by default None."""
    return field(default=None, metadata={"kind": kind, "doc": doc}, repr=False)


def shown(setting: Field[Any], value: object) -> str:
    """`value` as an error may tell it."""
    return repr(value) if setting.repr else HIDDEN


def read(setting: Field[Any], text: str, what: str) -> Any:
    """The value that `text` means, checked.

    Raises:
        SettingsError: It means none that can be used.
    """
    try:
        value = setting.metadata["kind"].read(text)
    except ValueError as error:
        raise unusable(what, str(error)) from None
    check(setting, value, what)
    return value


def check(setting: Field[Any], value: object, what: str) -> None:
    """Refuse a value that does not fit.

    Raises:
        SettingsError: It does not; the message begins with `what`.
    """
    kind: Kind = setting.metadata["kind"]
    if not kind.fits(value):
        raise unusable(what, kind.advice)
