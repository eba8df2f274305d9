"""Self-signed certificate for test servers on loopback."""

import functools
import os
import shutil
import ssl
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

COMMAND = (
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout key "
    "-out cert -days 1 -subj /CN=x"
)


def make_certificate(folder: str) -> str:
    """Create a file with a certificate and its private key; returns its path."""
    if shutil.which("openssl") is None:
        # On a laptop the TLS tests may be skipped; in CI they must run.
        missing = pytest.fail if os.environ.get("CI") else pytest.skip
        missing("needs openssl to make a certificate; on Debian: apt install openssl")
    subprocess.run(COMMAND.split(), cwd=folder, check=True, capture_output=True)
    both = Path(folder, "both")
    both.write_bytes(Path(folder, "cert").read_bytes() + Path(folder, "key").read_bytes())
    return str(both)


@functools.cache
def self_signed() -> ssl.SSLContext:
    with TemporaryDirectory() as folder:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(make_certificate(folder))
    return context
