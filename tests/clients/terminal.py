"""A program in a terminal, with somebody at its keys."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time

from tests import TEST_TIMEOUT_S

#: What moves the cursor and sets colours.
CONTROL = re.compile(rb"\x1b(\[[0-9;?]*[ -/]*[@-~]|[()].|[=>78]|\][^\x07]*\x07)")
#: Lines and columns: wide enough for every title to be drawn in one piece.
SIZE = (40, 160)


class Terminal:
    """``with Terminal(command, env) as terminal``: ``terminal.sees("Alpha")``; ``terminal.keys("\\r")``."""

    def __init__(self, command, env):
        self._command, self._env, self._seen = command, {**os.environ, "TERM": "xterm", **env}, b""

    def __enter__(self):
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", *SIZE, 0, 0))
        self._process = subprocess.Popen(
            self._command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=self._env,
            start_new_session=True,
        )
        os.close(slave)
        return self

    def wait_for(self, text, seconds=TEST_TIMEOUT_S):
        """Waits until this was drawn; what was drawn before it is forgotten."""
        end = time.monotonic() + seconds
        while (at := (plain := CONTROL.sub(b"", self._seen)).find(text.encode())) < 0:
            ready, _, _ = select.select([self._master], [], [], max(0, end - time.monotonic()))
            assert ready, (
                f"waited {seconds} s for {text!r}; drawn was {plain.decode(errors='replace')}"
            )
            self._seen += os.read(self._master, 65536)
        self._seen = plain[at + len(text) :]

    def keys(self, keys):
        os.write(self._master, keys.encode())

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()
        os.close(self._master)
