#!/usr/bin/env bash
# Runs Docker Compose v2 with the arguments given: the installed one, else one built from source through Go's
# module proxy (a few minutes, once; kept in the user's cache folder), else Debian's docker-compose.
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
    say "building Docker Compose $VERSION (a few minutes, once)"
    mkdir -p "$(dirname "$BUILT")"
    (cd "$HERE/compose" && go build -mod=readonly -trimpath \
        -ldflags "-s -w -X github.com/docker/compose/v2/internal.Version=$VERSION" \
        -o "$BUILT.$$" github.com/docker/compose/v2/cmd) >&2 && mv "$BUILT.$$" "$BUILT"
}

v1() {
    command -v docker-compose >/dev/null && return 0
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    say "installing docker-compose"
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends docker-compose >/dev/null
}

if docker compose version 2>/dev/null | grep -q ' v\?2\.'; then
    command=(docker compose)
elif [ -x "$BUILT" ] || build; then
    command=("$BUILT")
elif v1; then
    command=(docker-compose)
else
    say "Docker Compose is missing; install the compose plugin of your Docker, or Go to build it here"
    exit 3
fi
if [ "${1:-}" = --which ]; then echo "${command[@]}"; else exec "${command[@]}" "$@"; fi
