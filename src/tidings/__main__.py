"""Run the command line when the package is started with ``python -m tidings``."""

from tidings.cli import main

if __name__ == "__main__":
    main()
