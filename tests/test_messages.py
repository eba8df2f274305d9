"""The template of the message catalog (gettext) has every interface text of the source."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
CATALOG = ROOT / "src" / "tidings" / "locale" / "tidings.pot"


def test_catalog_is_current(tmp_path):
    extracted = tmp_path / "tidings.pot"
    options = ["-F", "tools/babel.cfg", "-k", "_", "-k", "n_:1,2", "--no-location"]
    options += ["--sort-output", "--omit-header", "-o", str(extracted), "src"]
    command = [sys.executable, "-m", "babel.messages.frontend", "-q", "extract", *options]
    subprocess.run(command, cwd=ROOT, check=True, timeout=120)
    assert extracted.read_text() == CATALOG.read_text(), "run `make messages`"
