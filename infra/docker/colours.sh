#!/usr/bin/env bash
# Two colours in containers: starts the front and both meshes, ends them, or runs a command about them.
#
#   infra/docker/colours.sh up                  # makes missing secrets, starts all, waits until all is ready
#   infra/docker/colours.sh colour status       # and shift, split, drain, sleep, wake
#   infra/docker/colours.sh compose blue ps     # Compose on the project of one colour, or of the `front`
#   infra/docker/colours.sh down [--volumes]    # ends all; with --volumes the data go, too
#
# Variables: those of infra/compose.yaml and infra/compose.colours.yaml, HIFI_GREEN_CONSOLE_PORT (8190) beside
# HIFI_CONSOLE_PORT for blue, and HIFI_COLOUR_FILES: more files for both colours, separated by spaces.
set -euo pipefail
cd "$(dirname "$0")/../.."

DOCKER_HOST=${DOCKER_HOST:-$(infra/docker/engine.sh)}
HIFI_DOCKER_SOCKET=${HIFI_DOCKER_SOCKET:-${DOCKER_HOST#unix://}}
HIFI_DOCKER_GROUP=${HIFI_DOCKER_GROUP:-$(stat -L -c %g "$HIFI_DOCKER_SOCKET")}
export DOCKER_HOST HIFI_DOCKER_SOCKET HIFI_DOCKER_GROUP
NAME=${HIFI_COLOURS_PROJECT:-hifi}

front() {
    infra/docker/compose.sh -p "$NAME-colours" -f infra/compose.colours.yaml \
        ${HIFI_SECOND_PORT:+--profile second-front} "$@"
}

mesh() {
    local colour=$1 port=${HIFI_CONSOLE_PORT:-8090} files=()
    shift
    [ "$colour" = blue ] || port=${HIFI_GREEN_CONSOLE_PORT:-8190}
    for file in ${HIFI_COLOUR_FILES:-}; do files+=(-f "$file"); done
    HIFI_COLOUR=$colour HIFI_CONSOLE_PORT=$port infra/docker/compose.sh -p "$NAME-$colour" \
        -f infra/compose.yaml -f infra/compose.colour.yaml "${files[@]}" "$@"
}

case "${1:-}" in
up)
    shift
    infra/docker/secrets.sh "${HIFI_SECRETS:-.run/secrets}"
    front up --detach --wait "$@"
    # Both colours are made at once; each waits for its own Kafka.
    mesh blue up --detach --wait "$@" &
    mesh green up --detach --wait "$@"
    wait $!
    front run --rm -T cli colour status
    ;;
down)
    shift
    front stop colours  # else it would start the colours again
    for colour in blue green; do mesh "$colour" down "$@"; done
    front down "$@"
    ;;
compose)
    which=${2:?blue, green or front}
    shift 2
    if [ "$which" = front ]; then front "$@"; else mesh "$which" "$@"; fi
    ;;
colour) front run --rm -T cli "$@" ;;
*) echo "colours.sh: unknown command ${1:-}: up, down, colour or compose" >&2; exit 2 ;;
esac
