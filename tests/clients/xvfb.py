"""A screen that nobody sees, for programs with windows."""

import os
import subprocess
from contextlib import contextmanager

from tests import TEST_TIMEOUT_S

TRIES = 50


@contextmanager
def virtual_display(folder):
    """The environment in which a program draws there, and keeps what it keeps in `folder`."""
    reading, writing = os.pipe()
    command = [
        "Xvfb",
        "-displayfd",
        str(writing),
        "-screen",
        "0",
        "1280x1024x24",
        "-nolisten",
        "tcp",
    ]
    with subprocess.Popen(command, pass_fds=[writing], stderr=subprocess.DEVNULL) as server:
        os.close(writing)
        try:
            with os.fdopen(reading) as result:
                display = f":{int(result.readline())}"
            yield {
                "DISPLAY": display,
                "HOME": str(folder),
                "XDG_RUNTIME_DIR": str(folder),
                "PATH": os.environ["PATH"],
            }
        finally:
            server.terminate()


@contextmanager
def program(command, env, folder):
    """Running, with all that it starts, until it is left."""
    with open(folder / "program.log", "w") as log:
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        os.killpg(process.pid, 9)
        process.wait()


def press_key(env, window, key):
    """As a person would. There is no window manager, so the window of this name is given the keys first.

    The screen does one thing after another: nothing has to wait for the focus, which a window that closes never gets.
    """
    command = ["xdotool", "search", "--onlyvisible", "--name", window, "windowfocus", "key", key]
    for _ in range(TRIES):  # some other window may be closed while it is looked at
        if (
            subprocess.run(
                command, env=env, check=False, stderr=subprocess.DEVNULL, timeout=TEST_TIMEOUT_S
            ).returncode
            == 0
        ):
            return
    raise AssertionError(f"no window {window} takes {key}")
