"""A virtual display (Xvfb) for desktop apps."""

import os
import subprocess
from contextlib import contextmanager

from tests import TEST_TIMEOUT_S

TRIES = 50


@contextmanager
def virtual_display(folder):
    """Yield the environment of a program on the display, with `folder` as its home."""
    read_fd, write_fd = os.pipe()
    command = [
        "Xvfb",
        "-displayfd",
        str(write_fd),
        "-screen",
        "0",
        "1280x1024x24",
        "-nolisten",
        "tcp",
    ]
    with subprocess.Popen(command, pass_fds=[write_fd], stderr=subprocess.DEVNULL) as server:
        os.close(write_fd)
        try:
            with os.fdopen(read_fd) as pipe:
                display = f":{int(pipe.readline())}"
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
    """Run a program and kill it with its child processes at the end."""
    with open(folder / "program.log", "w") as log:
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        os.killpg(process.pid, 9)
        process.wait()


def press_key(env, window, key):
    """Send a key to a window by name.

    There is no window manager, so the window gets the focus first. X processes requests in order,
    so there is no need to wait for the focus, which a closing window never gets.
    """
    command = ["xdotool", "search", "--onlyvisible", "--name", window, "windowfocus", "key", key]
    for _ in range(TRIES):  # the search fails if another window closes meanwhile
        if (
            subprocess.run(
                command, env=env, check=False, stderr=subprocess.DEVNULL, timeout=TEST_TIMEOUT_S
            ).returncode
            == 0
        ):
            return
    raise AssertionError(f"no window {window} accepts {key}")
