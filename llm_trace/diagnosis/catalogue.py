"""Models by name, by directory or by file: where a configuration comes from."""

from __future__ import annotations

import difflib
import json
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, Final, NamedTuple

from llm_trace.diagnosis.shape import Config, ModelConfigError

_LARGEST: Final = 8 << 20
"""Bytes; a `config.json` has a few thousand."""


class Model(NamedTuple):
    """A model's configuration and where it was found."""

    name: str
    config: Config
    source: str
    parameters: int | None = None
    """As published; None for what is not in the table."""


@lru_cache(maxsize=1)
def table() -> dict[str, Model]:
    """Public models by their name on the Hugging Face hub, with the fields that cost."""
    text = resources.files(__package__).joinpath("models.json").read_text(encoding="utf-8")
    return {
        name: Model(name, row["config"], row["source"], row["parameters"])
        for name, row in json.loads(text).items()
    }


def find(name: str) -> Model:
    """The model called `name`: a directory, a `config.json`, or a name of the table.

    Args:
        name: A path, `meta-llama/Llama-3.1-8B`, or the last part of such a name.

    Raises:
        ModelConfigError: There is none, or it cannot be read.
    """
    path = Path(name)
    try:
        if path.is_dir():
            return _read(path / "config.json", path.resolve().name)
        if path.is_file():
            return _read(path, path.resolve().parent.name)
    except (OSError, ValueError) as fault:  # a name no file can have
        raise ModelConfigError(f"{name[:80]!r} cannot be read: {fault}.") from None
    return _named(name)


def _named(name: str) -> Model:
    models = table()
    short = {full.rpartition("/")[2].lower(): full for full in models}
    full = short.get(name.rpartition("/")[2].lower())
    if full is not None and name.lower() in {full.lower(), full.rpartition("/")[2].lower()}:
        return models[full]
    near = difflib.get_close_matches(name.rpartition("/")[2].lower(), short, n=1, cutoff=0.5)
    hint = f"did you mean {short[near[0]]}? " if near else ""
    raise ModelConfigError(
        f"model {name[:80]!r} is neither a directory, a config.json nor a name of the table: "
        f"{hint}Known are {', '.join(sorted(models))}. For another give its directory."
    )


def _read(path: Path, name: str) -> Model:
    if not path.is_file():
        raise ModelConfigError(f"{path.parent} holds no config.json: give a model's directory.")
    with path.open("rb") as file:
        text = file.read(_LARGEST + 1)
    if len(text) > _LARGEST:
        raise ModelConfigError(f"{path} is too large for a config.json: over {_LARGEST} bytes.")
    config: Any = None
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as fault:
        raise ModelConfigError(f"{path} is no JSON: {str(fault)[:80]}.") from None
    if not isinstance(config, dict):
        raise ModelConfigError(f"{path} is no model configuration: expected a JSON object.")
    return Model(name, config, str(path))
