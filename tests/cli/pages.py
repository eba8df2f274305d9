"""Pages of the documentation, taken apart into blocks, and run as a reader would type them."""

import os
import re
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import NamedTuple

from tests.cli.conftest import TIDINGS

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
#: Commands that go on until they are stopped: a reader has them in a terminal of their own.
LASTING = re.compile(
    r"make run|(?:\S+/)?tidings (?:.* )?(?:serve|worker|list-server|demo)\b(?!.*--help)"
)
#: What must stand before a block that nobody can try without root, Docker or a second machine.
UNTRIED = "not tried by the tests"
TEST_TIMEOUT_S = 300

# What goes on in the background says " is at " when it can be used; its end is told to it and waited for.
PROLOGUE = r"""
set -e
lasting=()
trap 'for pid in "${lasting[@]}"; do kill "$pid"; wait "$pid"; done 2>/dev/null || true' EXIT
usable() {
  for _ in {1..2000}; do
    if grep -qs " is at \|^working" "lasting.$1"; then return; fi
    kill -0 "$1" || break
    sleep 0.1
  done
  cat "lasting.$1" >&2
  exit 1
}
"""
START = """( exec > "lasting.$BASHPID" 2>&1; exec {} ) & lasting+=($!); usable "$!" """


class Block(NamedTuple):
    """What stands between two fences."""

    kind: str
    text: str
    before: str  #: the paragraph above it

    @property
    def file(self):
        """Where the reader is to put it: the first line says so in a comment."""
        return found[1] if (found := re.match(r"# (\S+\.(?:toml|py))\n", self.text)) else None

    def steps(self):
        """Commands, each with what the page says that it prints."""
        for step in re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]:
            command, printed = re.match(r"((?:[^\n]*\\\n)*[^\n]*)\n(.*)", step, re.DOTALL).groups()
            yield command, printed


def pages(*patterns):
    return sorted(
        str(page.relative_to(ROOT)) for pattern in patterns for page in ROOT.glob(pattern)
    )


def blocks(text):
    found = BLOCK.finditer(text)
    return [
        Block(one[1], one[2], text[: one.start()].rstrip().rpartition("\n\n")[2]) for one in found
    ]


def as_printed(printed):
    """What the page says, as a pattern: ``...`` is whatever may differ."""
    return re.escape(printed.strip()).replace(r"\.\.\.", ".*")


def _free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


class Desk:
    """A reader's desk: an empty folder with a clone of this repository in reach, a list of subscriptions, and blogs to read.

    Pages name the usual port and example.org; here it is a free port and blogs on the loopback address, so that nobody is
    troubled. All else is run as written, a page in one shell.
    """

    def __init__(self, folder, blogs):
        self.folder, self._blogs = folder, blogs
        venv = folder / ".venv"
        venv.mkdir()
        (venv / "bin").symlink_to(TIDINGS.parent)
        for name in (
            "Makefile",
            "pyproject.toml",
            "requirements.lock",
            "requirements-dev.lock",
            "benchmarks",
            "src",
        ):
            (folder / name).symlink_to(ROOT / name)
        (venv / ".installed").touch()
        (venv / ".tools").touch()
        subscriptions = blogs.list(folder / "subscriptions.opml")
        lines = subscriptions.read_text().splitlines()
        subscriptions.write_text(
            "\n".join(line for line in lines if f'"{blogs.url(1)}"' not in line)
        )  # the blog at example.org
        self._port = _free_port()

    def read(self, page):
        text = (ROOT / page).read_text()
        for written, here in (
            ("https://example.org/feed", self._blogs.url(1)),
            ("https://example.org", self._blogs.site(1)),
            ("127.0.0.1:8035", f"127.0.0.1:{self._port}"),
            *((port, str(_free_port())) for port in ("8037", "8038")),
        ):
            text = text.replace(written, here)
        return blocks(text)

    def run(self, page):
        """Everything that can be run, in the order of the page; how many commands that were."""
        script, expected = [PROLOGUE], []
        for block in self.read(page):
            if block.file is not None:
                script.append(
                    f"mkdir -p {Path(block.file).parent}; cat > {block.file} <<'END_OF_FILE'\n{block.text}END_OF_FILE"
                )
                if block.kind == "toml":
                    script.append(
                        f"tidings --data-dir {Path(block.file).parent} config > /dev/null"
                    )
            elif block.kind == "python":
                script.append(f"python <<'END_OF_FILE'\n{block.text}END_OF_FILE")
            elif block.kind == "console":
                for command, printed in block.steps():
                    expected.append((command, printed))
                    script.append(f"echo '<<step {len(expected)}>>'")
                    lasting = LASTING.match(command)
                    script.append(START.format(command) if lasting else command)
        printed = self._shell("\n".join(script), page)
        for said, (command, written) in zip(
            re.split(r"<<step \d+>>\n", printed)[1:], expected, strict=True
        ):
            if written.strip():
                assert re.fullmatch(as_printed(written), said.strip(), re.DOTALL), (
                    f"{command}\n{said}"
                )
        return len(expected)

    def _shell(self, script, page):
        environment = {
            **os.environ,
            "PATH": f"{TIDINGS.parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.folder),
            "TIDINGS_DATA_DIR": "data",
            "TIDINGS_SERVE_PORT": str(self._port),
            "TIDINGS_FETCH_ALLOW_PRIVATE": "true",
            "TIDINGS_LOG_LEVEL": "warning",
        }
        shell = subprocess.Popen(
            [shutil.which("bash"), "-c", script],
            cwd=self.folder,
            env=environment,
            text=True,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            printed, complaints = shell.communicate(timeout=TEST_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(shell.pid, signal.SIGTERM)
            printed, complaints = shell.communicate(timeout=TEST_TIMEOUT_S)
        assert (shell.returncode, complaints) == (0, ""), f"{page}\n{printed}\n{complaints}"
        return printed
