"""Reads what a version of vLLM offers, from its wheel or its folder, without running any of it.

Only names are kept: methods with their arguments, fields, values of enumerations, and whether a
line of some form is there. None of vLLM's code is copied.
"""

from __future__ import annotations

import ast
import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from vllm_versions.surfaces import Facts, Line, every_surface

FOLDER: Final = Path(__file__).parent / "facts"

Files = Mapping[str, str]
"""Python files of vLLM by their path in the wheel."""


def read_wheel(wheel: Path) -> dict[str, str]:
    """The Python files of a wheel that the table speaks of."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if _is_wanted(name)]
        return {name: archive.read(name).decode("utf-8") for name in names}


def read_folder(site_packages: Path) -> dict[str, str]:
    """The same of an installed vLLM."""
    paths = {str(p.relative_to(site_packages)): p for p in site_packages.glob("vllm/**/*.py")}
    return {name: p.read_text(encoding="utf-8") for name, p in paths.items() if _is_wanted(name)}


def _is_wanted(name: str) -> bool:
    return name.endswith(".py") and name.startswith(_folders())


def _folders() -> tuple[str, ...]:
    files = (s.path for s in every_surface() if not isinstance(s, Line))
    return (*files, "vllm/entrypoints/", "vllm/v1/engine/", "vllm/plugins/", "vllm/v1/metrics/")


def extract(files: Files) -> Facts:
    """What the table asks of one version."""
    classes: dict[str, Any] = {}
    for path, names in sorted(_owners().items()):
        tree = ast.parse(files.get(path, ""))
        found = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        for name in sorted(names & found.keys()):
            classes[f"{path}:{name}"] = _describe(found, found[name])
    return {"classes": classes, "lines": sorted(_lines(files))}


def _owners() -> dict[str, set[str]]:
    owners: dict[str, set[str]] = {}
    for surface in every_surface():
        if not isinstance(surface, Line):
            owners.setdefault(surface.path, set()).add(surface.owner)
    return owners


def _lines(files: Files) -> Iterator[str]:
    for line in every_surface():
        if isinstance(line, Line):
            pattern = re.compile(line.pattern, re.MULTILINE)
            inside = (text for name, text in files.items() if name.startswith(line.folder))
            if any(pattern.search(text) for text in inside):
                yield line.key


def _describe(classes: Mapping[str, ast.ClassDef], node: ast.ClassDef) -> dict[str, Any]:
    """A class with what it inherits from classes of the same file."""
    methods: dict[str, list[str]] = {}
    fields: set[str] = set()
    values: dict[str, int] = {}
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id in classes:
            inherited = _describe(classes, classes[base.id])
            methods |= inherited["methods"]
            fields |= set(inherited["fields"])
    for item in node.body:
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
            given = (*item.args.posonlyargs, *item.args.args, *item.args.kwonlyargs)
            methods[item.name] = [argument.arg for argument in given]
            fields |= set(_own_attributes(item))
        elif isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            fields.add(item.target.id)
        elif isinstance(item, ast.Assign):
            values |= _values(item)
            fields |= set(_members(item))
    return {"methods": methods, "fields": sorted(fields), "values": values}


def _own_attributes(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """What a method sets on `self`."""
    for node in ast.walk(function):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
            and node.value.id == "self"
        ):
            yield node.attr


def _values(item: ast.Assign) -> dict[str, int]:
    names = [target.id for target in item.targets if isinstance(target, ast.Name)]
    if isinstance(item.value, ast.Constant) and isinstance(item.value.value, int):
        return dict.fromkeys(names, item.value.value)
    return {}


def _members(item: ast.Assign) -> list[str]:
    """The members of an enumeration that numbers itself."""
    made = ast.unparse(item.value.func) if isinstance(item.value, ast.Call) else ""
    names = [target.id for target in item.targets if isinstance(target, ast.Name)]
    return names if made in {"auto", "enum.auto"} else []


def known() -> dict[str, Facts]:
    """The committed facts by version, oldest first."""
    paths = sorted(FOLDER.glob("*.json"), key=lambda path: _order(path.stem))
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in paths}


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def save(version: str, facts: Facts) -> Path:
    """Write the facts of a version, a class a line."""
    path = FOLDER / f"{version}.json"
    rows = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in facts["classes"].items())
    text = f'{{"lines": {json.dumps(facts["lines"])},\n "classes": {{\n{rows}\n }}}}\n'
    path.write_text(text, encoding="utf-8")
    return path
