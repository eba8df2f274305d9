"""Take the screenshots of the README: reader.png, reader-dark.png and phone.png.

    python docs/img/make_screenshots.py [--out docs/img]

The script starts the service with sample feeds in a temporary directory on loopback, and takes
the screenshots with Chromium (`make programs`). Colors are reduced to a palette of 256, which
keeps each file below 300 kB.
"""

import argparse
import sys
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.browser.screenshots import take_screenshots  # noqa: E402  (needs the path above)

NAMES = ("reader", "reader-dark", "phone")
MAX_BYTES = 300_000


def reduce_colors(file: Path) -> None:
    """Rewrite a PNG file with a palette of 256 colors.

    Maximum coverage keeps rare colors; median cut would turn the small yellow star gray.
    """
    picture = Image.open(file).convert("RGB")
    colors = picture.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    colors.save(file, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Take the screenshots of the README.")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "img", help="target directory")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    take_screenshots(out)
    for name in NAMES:
        file = out / f"{name}.png"
        reduce_colors(file)
        size = file.stat().st_size
        print(f"{file}: {size:,} bytes")
        if size > MAX_BYTES:
            sys.exit(f"{file} is larger than {MAX_BYTES:,} bytes")


if __name__ == "__main__":
    main()
