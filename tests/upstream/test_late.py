"""A module is acted on once, when it is imported, and its import is what it was."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
import zipfile

import pytest

from llm_trace.core import faults
from llm_trace.upstream.late import WhenImported


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """A module that can be imported and has not been."""
    (tmp_path / "fresh_module.py").write_text("value = 1\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield "fresh_module"
    sys.modules.pop("fresh_module", None)


@pytest.fixture
def waiting():
    """Finders that are removed with the test."""
    made = []

    def wait(acts):
        made.append(WhenImported(acts))
        made[-1].install()
        return made[-1]

    yield wait
    for finder in made:
        finder.remove()


def test_a_module_is_acted_on_when_it_is_imported(fresh, waiting):
    """After its own code ran, and only once."""
    seen = []
    waiting({fresh: lambda module: seen.append(module.value)})
    assert seen == []

    module = importlib.import_module(fresh)
    importlib.reload(module)

    assert seen == [1]
    assert module.__spec__.loader is module.__loader__


def test_looking_for_a_module_is_not_importing_it(fresh, waiting):
    """A library that only looks whether it is there takes nothing away."""
    seen = []
    waiting({fresh: lambda module: seen.append(module.value)})

    assert importlib.util.find_spec(fresh) is not None
    assert importlib.util.find_spec(fresh) is not None
    assert seen == []
    importlib.import_module(fresh)

    assert seen == [1]


def test_what_is_imported_on_the_way_by_the_same_loader_is_another_module(
    tmp_path, monkeypatch, waiting
):
    """One loader may load all that an archive has, as where an app is shipped in a file."""
    archive = tmp_path / "app.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("zipped_module.py", "import zipped_part\nvalue = 1\n")
        packed.writestr("zipped_part.py", "")
    monkeypatch.syspath_prepend(archive)
    seen = []
    waiting({"zipped_module": lambda module: seen.append(module.value)})

    try:
        importlib.import_module("zipped_module")
    finally:
        for name in ("zipped_module", "zipped_part"):
            sys.modules.pop(name, None)

    assert seen == [1]


def test_a_module_that_is_there_is_acted_on_at_once(waiting):
    """Nothing is imported for it."""
    seen = []
    waiting({"json": seen.append})

    assert seen == [sys.modules["json"]]


def test_a_module_that_is_missing_stays_missing(waiting):
    """The error is the import system's own."""
    waiting({"no_such_module_at_all": print})

    with pytest.raises(ModuleNotFoundError, match="no_such_module_at_all"):
        importlib.import_module("no_such_module_at_all")


def test_an_act_that_fails_fails_no_import(fresh, waiting):
    """It is counted; the app has its module."""
    before = faults.internal["upstream.patch"]
    waiting({fresh: lambda module: module.no_such_attribute})

    with faults.production():
        assert importlib.import_module(fresh).value == 1

    assert faults.internal["upstream.patch"] == before + 1


def test_removed_it_waits_no_longer(fresh, waiting):
    """What is imported after that is nobody's business."""
    seen = []
    waiting({fresh: seen.append}).remove()

    importlib.import_module(fresh)

    assert seen == []


PROGRAM = """
import sys
from starlette.applications import Starlette
import llm_trace

llm_trace.instrument(Starlette())
clients = {"httpx", "httpx2", "httpcore", "aiohttp", "openai", "multidict", "yarl"}
assert clients.isdisjoint(sys.modules), clients & set(sys.modules)

import importlib.util
assert all(map(importlib.util.find_spec, ("httpx", "aiohttp")))
import aiohttp, httpx
assert hasattr(httpx.Client.send, "__wrapped__")
assert hasattr(httpx.AsyncClient.send, "__wrapped__")
assert hasattr(aiohttp.ClientSession._request, "__wrapped__")
"""


def test_instrument_imports_no_client_and_watches_those_that_come():
    """A start costs no second of clients that the app may never use."""
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )

    assert (0, "") == (ran.returncode, ran.stderr)
