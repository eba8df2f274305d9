"""A certificate that nobody signed, for servers on loopback."""

import functools
import os
import shutil
import ssl
import subprocess
from tempfile import TemporaryDirectory

import pytest

COMMAND = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout key -out cert -days 1 -subj /CN=x"


@functools.cache
def self_signed() -> ssl.SSLContext:
    if shutil.which("openssl") is None:
        # On a laptop the tests of encryption can be left out; where they are to prove something they cannot.
        missing = pytest.fail if os.environ.get("CI") else pytest.skip
        missing("needs openssl to make a certificate; on Debian: apt install openssl")
    with TemporaryDirectory() as folder:
        subprocess.run(COMMAND.split(), cwd=folder, check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(f"{folder}/cert", f"{folder}/key")
    return context
