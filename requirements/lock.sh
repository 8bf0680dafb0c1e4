#!/usr/bin/env bash
# Makes the lock files anew: pinned, with hashes, without the address of any registry (as uv.lock would have).
# `all` is the development environment; each image has a lock of its own, with the same versions.
set -euo pipefail
cd "$(dirname "$0")/.."
UV=${UV:-.venv/bin/uv}
PYTHON=${PYTHON:-.venv/bin/python}
options=(--quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links)
for name in $($PYTHON requirements/members.py --names); do
    options+=(--no-emit-package "$name")
done

lock() {
    local name=$1
    shift
    "$UV" pip compile "${options[@]}" "$@" -o "requirements/$name.lock"
}

lock build requirements/build.in
lock all release/pyproject.toml services/observe/pyproject.toml requirements/dev.in
lock audit requirements/audit.in
lock release requirements/release.in
options+=(-c requirements/all.lock)
lock bench requirements/bench.in
lock hifi release/pyproject.toml
lock compile -c requirements/build.lock requirements/compile.in
lock destination requirements/destination.in
lock infra infra/pyproject.toml
lock tools cli/pyproject.toml
# The packages that images share: those of every service, and those of every service with Spark.
lock libs libs/pyproject.toml
lock spark --extra sql libs/pyproject.toml
for folder in services/*/; do
    extras=()
    [ "$folder" != services/egest/ ] || extras=(--extra parquet)
    lock "$(basename "$folder")" "${extras[@]}" "$folder/pyproject.toml"
done
