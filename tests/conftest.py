"""What all tests share: property tests judge behaviour, not how busy the machine is."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("busy machine")


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """A certificate for this host that nobody signed, with its key in the same file."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with")
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    words = "req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=test -addext"
    names = "subjectAltName=IP:127.0.0.1"
    command = ["openssl", *words.split(), names, "-keyout", file, "-out", file.with_suffix(".crt")]
    subprocess.run(command, check=True, capture_output=True)
    file.write_bytes(file.read_bytes() + file.with_suffix(".crt").read_bytes())
    return file
