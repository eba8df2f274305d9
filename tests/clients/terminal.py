"""A program in a pseudo-terminal that tests control with keys."""

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

#: Control sequences for cursor and colors.
CONTROL = re.compile(rb"\x1b(\[[0-9;?]*[ -/]*[@-~]|[()].|[=>78]|\][^\x07]*\x07)")
#: Lines and columns, wide enough for each title to fit on one line.
SIZE = (40, 160)


class Terminal:
    """A terminal: ``terminal.wait_for("Alpha")``; ``terminal.send_keys("\\r")``."""

    def __init__(self, command, env):
        self._command, self._env, self._output = (
            command,
            {**os.environ, "TERM": "xterm", **env},
            b"",
        )

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
        """Wait until a text is displayed, and discard the output up to it."""
        end = time.monotonic() + seconds
        while (at := (plain := CONTROL.sub(b"", self._output)).find(text.encode())) < 0:
            ready, _, _ = select.select([self._master], [], [], max(0, end - time.monotonic()))
            assert ready, (
                f"waited {seconds} s for {text!r}; output was {plain.decode(errors='replace')}"
            )
            self._output += os.read(self._master, 65536)
        self._output = plain[at + len(text) :]

    def send_keys(self, keys):
        os.write(self._master, keys.encode())

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()
        os.close(self._master)
