#!/bin/sh
# A password that comes as a file, as secrets do, becomes what clients of PostgreSQL look for. It stands in no command line.
set -eu
if [ -n "${PGPASSWORD_FILE:-}" ]; then
  PGPASSWORD=$(cat "$PGPASSWORD_FILE")
  export PGPASSWORD
fi
exec tidings "$@"
