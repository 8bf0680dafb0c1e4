#!/usr/bin/env bash
# Makes the lock files anew: pinned, with hashes, without the address of any registry.
set -euo pipefail
cd "$(dirname "$0")/.."
UV=${UV:-.venv/bin/uv}
opts=(--quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links)
ours=(--no-emit-package hifi-libs)
for p in infra ingest collect lake normalize enrich egest retrier observe provision scale manage deploy; do ours+=(--no-emit-package "hifi-$p"); done
"$UV" pip compile "${opts[@]}" requirements/build.in -o requirements/build.lock
"$UV" pip compile "${opts[@]}" "${ours[@]}" --extra mesh cli/pyproject.toml services/observe/pyproject.toml requirements/dev.in -o requirements/all.lock
"$UV" pip compile "${opts[@]}" -c requirements/all.lock requirements/bench.in -o requirements/bench.lock
"$UV" pip compile "${opts[@]}" "${ours[@]}" --extra parquet -c requirements/all.lock services/egest/pyproject.toml -o requirements/egest.lock
for s in ingest collect normalize enrich lake retrier observe provision manage; do
    "$UV" pip compile "${opts[@]}" "${ours[@]}" -c requirements/all.lock "services/$s/pyproject.toml" -o "requirements/$s.lock"
done
# One for both, so that their images share the layer.
"$UV" pip compile "${opts[@]}" "${ours[@]}" -c requirements/all.lock services/deploy/pyproject.toml services/scale/pyproject.toml -o requirements/actors.lock
"$UV" pip compile "${opts[@]}" "${ours[@]}" -c requirements/all.lock infra/pyproject.toml -o requirements/infra.lock
"$UV" pip compile "${opts[@]}" "${ours[@]}" -c requirements/all.lock cli/pyproject.toml -o requirements/tools.lock
"$UV" pip compile "${opts[@]}" -c requirements/all.lock requirements/destination.in -o requirements/destination.lock
"$UV" pip compile "${opts[@]}" -c requirements/all.lock -c requirements/build.lock requirements/compile.in -o requirements/compile.lock
"$UV" pip compile "${opts[@]}" requirements/audit.in -o requirements/audit.lock
