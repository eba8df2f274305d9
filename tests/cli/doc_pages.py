"""Extract the code blocks of documentation pages and run their commands in a shell."""

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
#: Commands that run until they are stopped; they are started in the background.
LONG_RUNNING = re.compile(
    r"make run|(?:\S+/)?tidings (?:.* )?(?:serve|worker|list-server|demo)\b(?!.*--help)"
)
#: Text required before a block that needs root, Docker or a second computer.
NOT_TESTED = "not tried by the tests"
TEST_TIMEOUT_S = 300

# A background command prints "running at" or "started" when it is ready. At the end of the page it
# is stopped with SIGTERM.
PROLOGUE = r"""
set -e
background=()
trap 'for pid in "${background[@]}"; do kill "$pid"; wait "$pid"; done 2>/dev/null || true' EXIT
wait_until_ready() {
  for _ in {1..2000}; do
    if grep -qs " running at \|started" "background.$1"; then return; fi
    kill -0 "$1" || break
    sleep 0.1
  done
  cat "background.$1" >&2
  exit 1
}
"""
START = (
    """( exec > "background.$BASHPID" 2>&1; exec {} ) & background+=($!); wait_until_ready "$!" """
)


class Block(NamedTuple):
    """A fenced code block."""

    kind: str
    text: str
    before: str  #: paragraph above the block

    @property
    def file(self):
        """File name of the block, if its first line is a comment with one."""
        return found[1] if (found := re.match(r"# (\S+\.(?:toml|py))\n", self.text)) else None

    def steps(self):
        """Yield commands with the output that the page shows."""
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


def output_pattern(printed):
    """Return a regular expression for the output on a page; ``...`` matches any text."""
    return re.escape(printed.strip()).replace(r"\.\.\.", ".*")


def _free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


class PageRunner:
    """Run the commands of a page in an empty directory, with an OPML file and a blog server.

    The default port is replaced by a free one, and example.org by blogs on loopback. Everything
    else is run as written, each page in one shell.
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
        subscriptions = blogs.write_opml(folder / "subscriptions.opml")
        lines = subscriptions.read_text().splitlines()
        subscriptions.write_text(
            "\n".join(line for line in lines if f'"{blogs.url(1)}"' not in line)
        )  # the page subscribes to it as example.org
        self._port = _free_port()

    def read(self, page):
        text = (ROOT / page).read_text()
        for written, replacement in (
            ("https://example.org/feed", self._blogs.url(1)),
            ("https://example.org", self._blogs.site(1)),
            ("127.0.0.1:8035", f"127.0.0.1:{self._port}"),
            *((port, str(_free_port())) for port in ("8037", "8038")),
        ):
            text = text.replace(written, replacement)
        return blocks(text)

    def run(self, page):
        """Run all commands of a page in order, compare the output, and return their number."""
        script, expected = [PROLOGUE], []
        for block in self.read(page):
            if block.file is not None:
                script.append(
                    f"mkdir -p {Path(block.file).parent}; "
                    f"cat > {block.file} <<'END_OF_FILE'\n{block.text}END_OF_FILE"
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
                    is_long_running = LONG_RUNNING.match(command)
                    script.append(START.format(command) if is_long_running else command)
        printed = self._shell("\n".join(script), page)
        for output, (command, written) in zip(
            re.split(r"<<step \d+>>\n", printed)[1:], expected, strict=True
        ):
            if written.strip():
                assert re.fullmatch(output_pattern(written), output.strip(), re.DOTALL), (
                    f"{command}\n{output}"
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
            printed, errors = shell.communicate(timeout=TEST_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(shell.pid, signal.SIGTERM)
            printed, errors = shell.communicate(timeout=TEST_TIMEOUT_S)
        assert (shell.returncode, errors) == (0, ""), f"{page}\n{printed}\n{errors}"
        return printed
