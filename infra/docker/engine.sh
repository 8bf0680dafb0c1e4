#!/usr/bin/env bash
# Finds a running Docker engine, or starts one, and prints its address:
#
#   export DOCKER_HOST="$(infra/docker/engine.sh)"      # use or start
#   infra/docker/engine.sh stop                         # stop the one that this script started
#
# A running engine is used unchanged (DOCKER_HOST, the current context, the usual sockets). Without one, as root on
# Debian or Ubuntu, the script installs docker.io if it is missing and starts dockerd in a way that leaves the
# machine's network unchanged: no default bridge, no iptables, no forwarding. Such an engine has user networks, names and ports published on 127.0.0.1 by docker-proxy, and
# containers that reach each other and nothing else; a build that downloads needs `--network host`.
#
# Exit status: 0 with the address on standard output; 3 with one sentence on standard error when no engine is
# available.
set -euo pipefail

RUN=/run/hifi-engine
SOCKET=/var/run/docker.sock
WAIT_S=60

say() { echo "engine.sh: $*" >&2; }
give_up() { say "$*"; exit 3; }

# The socket exists before the engine answers, so a connection is no proof: ask for the version.
answers() { DOCKER_HOST=$1 timeout 10 docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }

known_hosts() {
    [ -z "${DOCKER_HOST:-}" ] || echo "$DOCKER_HOST"
    docker context inspect --format '{{.Endpoints.docker.Host}}' 2>/dev/null || true
    echo "unix://$SOCKET"
    [ -z "${XDG_RUNTIME_DIR:-}" ] || echo "unix://$XDG_RUNTIME_DIR/docker.sock"
}

find_engine() {
    local host
    while read -r host; do
        if answers "$host"; then echo "$host"; return 0; fi
    done < <(known_hosts | awk '!seen[$0]++')
    return 1
}

start_engine() {
    [ "$(uname -s)" = Linux ] || give_up "no Docker engine answers; start Docker Desktop or its like, then try again"
    [ "$(id -u)" = 0 ] || give_up "no Docker engine answers, and only root can start one: start it (systemctl start docker), or join the docker group"
    if ! command -v dockerd >/dev/null; then
        command -v apt-get >/dev/null || give_up "no Docker engine is installed; install one from your system's packages"
        say "installing docker.io"
        export DEBIAN_FRONTEND=noninteractive
        { apt-get update -qq && apt-get install -y -qq --no-install-recommends docker.io iproute2; } >/dev/null ||
            give_up "docker.io could not be installed with apt-get"
    fi
    mkdir -p "$RUN"
    say "starting dockerd (log: $RUN/dockerd.log)"
    setsid nohup dockerd --host "unix://$SOCKET" --pidfile "$RUN/dockerd.pid" \
        --storage-driver "${HIFI_STORAGE_DRIVER:-overlay2}" --bridge=none --iptables=false --ip-forward=false \
        --default-address-pool base=172.30.0.0/16,size=24 \
        --log-opt max-size=10m --log-opt max-file=2 </dev/null >"$RUN/dockerd.log" 2>&1 &
    local pid=$! deadline=$((SECONDS + WAIT_S))
    until answers "unix://$SOCKET"; do
        kill -0 "$pid" 2>/dev/null || { tail -n 20 "$RUN/dockerd.log" >&2; give_up "dockerd ended at its start"; }
        [ "$SECONDS" -lt "$deadline" ] || give_up "dockerd gave no answer within $WAIT_S s (log: $RUN/dockerd.log)"
        sleep 0.3
    done
    echo "unix://$SOCKET"
}

stop_engine() {
    [ -f "$RUN/dockerd.pid" ] || { say "this script started no engine"; return 0; }
    local pid deadline=$((SECONDS + WAIT_S))
    pid=$(cat "$RUN/dockerd.pid")
    kill "$pid" 2>/dev/null || true
    while kill -0 "$pid" 2>/dev/null; do
        [ "$SECONDS" -lt "$deadline" ] || give_up "dockerd ($pid) did not end within $WAIT_S s"
        sleep 0.3
    done
}

case "${1:-start}" in
start)
    command -v docker >/dev/null || [ "$(id -u)" = 0 ] || give_up "the docker command is missing; install Docker"
    find_engine || start_engine
    ;;
stop) stop_engine ;;
*) say "unknown argument $1: start (default) or stop"; exit 2 ;;
esac
