"""Does something to a module when it is imported, or at once where it is already there.

Importing every client that is installed would cost a start its seconds, for clients that the app
may never use.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from llm_trace.core import faults

Act = Callable[[ModuleType], None]


class WhenImported(MetaPathFinder):
    """A finder that finds nothing itself: it only hears of the import.

    Args:
        acts: What to do to which module, by its name; once for each.
    """

    def __init__(self, acts: dict[str, Act]) -> None:
        self._acts = dict(acts)

    def install(self) -> None:
        """Act on what is imported, and wait for the rest."""
        for name in tuple(self._acts):
            module = sys.modules.get(name)
            if module is not None:
                _act(self._acts.pop(name), module)
        sys.meta_path.insert(0, self)

    def remove(self) -> None:
        """Wait no longer."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:  # noqa: ARG002
        """The spec that the others find, with a word for its loader."""
        act = self._acts.pop(name, None)  # first, since the others are asked through us again
        spec = importlib.util.find_spec(name) if act is not None else None
        if act is None or spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            _act(act, module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _act(act: Act, module: ModuleType) -> None:
    try:
        act(module)
    except Exception as error:  # noqa: BLE001 - rule 1: an import must not fail for us
        faults.contain("upstream.patch", error)
