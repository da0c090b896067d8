"""Does something to a module when it is imported, or at once where it is already there.

Importing every client that is installed would cost a start its seconds, for clients that the app
may never use.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
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
        self._asking = threading.local()

    def install(self) -> None:
        """Act on what is imported, and wait for the rest."""
        for name in tuple(self._acts):
            module = sys.modules.get(name)
            if module is not None:
                _act(self._acts.pop(name), module)
        sys.meta_path.insert(0, self)

    def remove(self) -> None:
        """Wait no longer."""
        self._acts.clear()
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:  # noqa: ARG002
        """The spec that the others find, with a word for its loader.

        Asking for a spec is not yet an import: many libraries only look whether another is there.
        """
        if name not in self._acts or getattr(self._asking, "name", None) == name:
            return None
        self._asking.name = name  # the others are asked through us again
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._asking.name = None
        if spec is not None and spec.loader is not None:
            self._listen(spec.loader, name)
        return spec

    def _listen(self, loader: Any, name: str) -> None:
        load = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            # One loader may load many modules: those of an archive, or of a frozen app.
            act = self._acts.pop(name, None) if module.__name__ == name else None
            if act is not None:
                _act(act, module)

        loader.exec_module = exec_module


def _act(act: Act, module: ModuleType) -> None:
    try:
        act(module)
    except Exception as error:  # noqa: BLE001 - rule 1: an import must not fail for us
        faults.contain("upstream.patch", error)
