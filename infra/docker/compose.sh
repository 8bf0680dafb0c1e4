#!/usr/bin/env bash
# Runs Docker Compose v2: the installed one, else one built from source through Go's module proxy (a few minutes,
# once; kept in the user's cache folder). Compose v1 cannot wait for health (`--wait`).
#
#   infra/docker/compose.sh -f infra/compose.yaml ps
#   infra/docker/compose.sh --which          # prints the command, runs nothing
set -euo pipefail

VERSION=v2.40.3
HERE=$(cd "$(dirname "$0")" && pwd)
BUILT="${XDG_CACHE_HOME:-$HOME/.cache}/hifi/docker-compose-$VERSION"

say() { echo "compose.sh: $*" >&2; }

build() {
    command -v go >/dev/null || return 1
    mkdir -p "$(dirname "$BUILT")"
    exec 9>"$BUILT.lock"
    flock 9  # another process may be building it
    if [ -x "$BUILT" ]; then return; fi
    say "building Docker Compose $VERSION (a few minutes, once)"
    (cd "$HERE/compose" && go build -mod=readonly -trimpath \
        -ldflags "-s -w -X github.com/docker/compose/v2/internal.Version=$VERSION" \
        -o "$BUILT.$$" github.com/docker/compose/v2/cmd) >&2 && mv "$BUILT.$$" "$BUILT"
}

if docker compose version 2>/dev/null | grep -q ' v\?2\.'; then
    command=(docker compose)
elif [ -x "$BUILT" ] || build; then
    command=("$BUILT")
else
    say "Docker Compose is missing; install the compose plugin of your Docker, or Go to build it here"
    exit 3
fi
if [ "${1:-}" = --which ]; then echo "${command[@]}"; else exec "${command[@]}" "$@" 9>&-; fi
