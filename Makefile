# Two commands to start with: `make run` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TOOLS := $(VENV)/.tools
SHELL := /bin/bash

.PHONY: run setup tools programs test test-slow lint messages bench bench-refresh clean lock

run: setup
	$(BIN)/tidings --data-dir data serve

setup: $(STAMP)

# Quick when nothing changed: the stamp is newer than what it was made from.
$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "tidings needs Python 3.11 or newer; set PYTHON=python3.12, say"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "python3 has no venv module; on Debian: sudo apt install python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m compileall -q src
	@touch $(STAMP)

# Packages that only tests, checks and benchmarks need; `make run` does not install them.
tools: $(TOOLS)

$(TOOLS): $(STAMP) requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@touch $(TOOLS)

lint: tools
	$(BIN)/ruff check src tests benchmarks tools
	$(BIN)/ruff format --check src tests benchmarks tools
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/lint_language.py

# Template of the message catalog (gettext), extracted from Python and from the page templates; tests check that it is current.
messages: tools
	$(BIN)/python -m babel.messages.frontend -q extract -F tools/babel.cfg -k _ -k n_:1,2 -k N_ --no-location --sort-output --omit-header -o src/tidings/locale/tidings.pot src

# Programs that tests run and pip cannot install. As root on Debian they are installed with apt; elsewhere Playwright downloads Chromium,
# and tests that need newsboat are skipped with a message.
programs: tools
	@missing=$$(for one in chromium newsboat; do command -v $$one >/dev/null || echo $$one; done); \
	if [ -n "$$missing" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq && apt-get install -qq -y --no-install-recommends $$missing >/dev/null; fi
	@command -v chromium chromium-browser google-chrome >/dev/null || $(BIN)/playwright install chromium \
	  || echo "no browser could be fetched; on Debian: sudo apt install chromium"

test: lint programs
	$(BIN)/pytest -m "not slow" -n auto --dist loadfile

test-slow: tools
	$(BIN)/pytest -m slow

bench: tools
	$(BIN)/python benchmarks/run.py

# Comparison with other programs; READER=PYTHON names a Python with lemon24/reader installed.
bench-refresh: tools
	$(BIN)/python -m benchmarks.refresh --reader "$(READER)"

# Lock files with versions and hashes, without index addresses, for running and for testing.
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate \
  --custom-compile-command 'make lock'
lock: setup
	$(BIN)/python -m pip install --quiet uv
	$(COMPILE) $(addprefix --extra ,lab fast postgres alerts fulltext keys build) --output-file requirements.lock pyproject.toml
	$(COMPILE) --constraint requirements.lock --all-extras --output-file requirements-dev.lock pyproject.toml

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
