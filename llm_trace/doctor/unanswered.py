"""Why a knock at an endpoint failed: TLS or none, a certificate, another protocol, or nobody."""

from __future__ import annotations

import socket
import ssl
from http.client import HTTPException
from typing import Final, NamedTuple

from llm_trace.doctor.finding import Finding

SECONDS: Final = 5.0


class Advice(NamedTuple):
    """What to do about each of these, at this kind of place."""

    nobody: str
    untrusted: str
    no_http: str


class Place(NamedTuple):
    """Where somebody is asked."""

    host: str
    port: int
    tls: bool
    """Whether the address begins with https."""

    def __str__(self) -> str:
        """As an error names it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def speaks_tls(self) -> bool:
        """Whether somebody shakes hands there, whatever the certificate."""
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.set_alpn_protocols(["h2", "http/1.1"])
        try:
            with socket.create_connection((self.host, self.port), SECONDS) as plain:
                context.wrap_socket(plain, server_hostname=self.host).close()
        except (OSError, ValueError):
            return False
        return True


def unanswered(check: str, place: Place, fault: Exception, advice: Advice) -> Finding:
    """What `fault`, raised in place of an answer of `place`, says of it."""
    if isinstance(fault, ssl.SSLCertVerificationError):
        said = f"the certificate of {place} is not trusted: {fault.verify_message}"
        return Finding(check, "fault", said, advice.untrusted)
    if isinstance(fault, ssl.SSLError):
        said = f"{place} answers, but the TLS handshake fails: {fault.reason or fault}"
        fix = "If it speaks plain text there, begin the address with http://."
        return Finding(check, "fault", said, fix)
    cut = isinstance(fault, ConnectionResetError)
    if (cut or isinstance(fault, HTTPException)) and not place.tls and place.speaks_tls():
        return in_tls(check, place)
    if isinstance(fault, HTTPException) and not cut:
        return Finding(check, "fault", f"what answers at {place} is no HTTP", advice.no_http)
    why = str(fault)[:120] or type(fault).__name__
    return Finding(check, "fault", f"nobody answers at {place}: {why}", advice.nobody)


def in_tls(check: str, place: Place) -> Finding:
    """Plain text was said to a port of TLS."""
    said = f"{place} speaks TLS, and the address begins with http://"
    return Finding(check, "fault", said, "Begin it with https://.")
