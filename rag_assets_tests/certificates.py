"""Certificates for servers in tests, made by ``openssl``: sound, expired, of another host."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final


@dataclass(frozen=True, slots=True)
class Certificates:
    """A private authority and what servers show: files in PEM."""

    authority: Path
    """What a client trusts: the environment variable SSL_CERT_FILE names it."""
    folder: Path

    def pair(self, kind: str) -> tuple[Path, Path]:
        """Certificate and key of a kind of server of ``fault_proxy``."""
        return self.folder / f"{kind}.pem", self.folder / f"{kind}.key"


_CERTIFICATES: Final = {
    "tls_trusted": ("2", "IP:127.0.0.1"),
    "tls_expired": ("-1", "IP:127.0.0.1"),
    "tls_wrong_host": ("2", "DNS:other.example"),
}
_NEW_KEY: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@cache
def _certificate_folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="certificates-")


@cache
def make_certificates() -> Certificates:
    """A new authority with one certificate of each kind; made once for a process.

    Raises:
        OSError, subprocess.SubprocessError: there is no ``openssl`` that can.
    """
    folder = Path(_certificate_folder().name)
    made = Certificates(folder / "authority.pem", folder)
    key = folder / "authority.key"
    _openssl("req", "-x509", *_NEW_KEY, "-days", "2", "-subj", "/CN=Test authority",
             "-keyout", key, "-out", made.authority)  # fmt: skip
    certificate, own_key = made.pair("tls_self_signed")
    _openssl("req", "-x509", *_NEW_KEY, "-days", "2", "-subj", "/CN=127.0.0.1",
             "-addext", "subjectAltName=IP:127.0.0.1",
             "-keyout", own_key, "-out", certificate)  # fmt: skip
    for kind, (days, name) in _CERTIFICATES.items():
        _sign(made, kind, days, name, key)
    return made


def _sign(made: Certificates, kind: str, days: str, name: str, authority_key: Path) -> None:
    folder = made.folder
    request, names = folder / f"{kind}.csr", folder / f"{kind}.names"
    names.write_text(f"subjectAltName={name}\n", "ascii")
    _openssl("req", *_NEW_KEY, "-subj", "/CN=Test server", "-keyout", folder / f"{kind}.key",
             "-out", request)  # fmt: skip
    _openssl("x509", "-req", "-in", request, "-CA", made.authority, "-CAkey", authority_key,
             "-CAcreateserial", "-days", days, "-extfile", names,
             "-out", folder / f"{kind}.pem")  # fmt: skip


def _openssl(*words: str | Path) -> None:
    command: Sequence[str] = ["openssl", *map(str, words)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
