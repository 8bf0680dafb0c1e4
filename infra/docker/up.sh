#!/usr/bin/env bash
# Starts the example deployment with its demo destination, creates missing secrets, and waits until all is ready.
# With HIFI_CONTROL=hifi-control the control plane's services start, too, and with HIFI_CONNECT=1 Kafka Connect. Arguments
# go to `docker compose up`, such as `--scale normalize=3`.
set -euo pipefail
cd "$(dirname "$0")/../.."

DOCKER_HOST=$(infra/docker/engine.sh)
export DOCKER_HOST
infra/docker/secrets.sh "${HIFI_SECRETS:-.run/secrets}"
profiles=(--profile demo)
[ -z "${HIFI_CONNECT:-}" ] || profiles+=(--profile connect)
if [ -n "${HIFI_CONTROL:-}" ]; then
    profiles+=(--profile control --profile executor)
    HIFI_DOCKER_SOCKET=${HIFI_DOCKER_SOCKET:-${DOCKER_HOST#unix://}}
    HIFI_DOCKER_GROUP=${HIFI_DOCKER_GROUP:-$(stat -L -c %g "$HIFI_DOCKER_SOCKET")}
    export HIFI_DOCKER_SOCKET HIFI_DOCKER_GROUP
fi
port=${HIFI_PUBLIC_PORT:-8080}
infra/docker/compose.sh -f infra/compose.yaml "${profiles[@]}" up --detach --wait "$@"
cat <<END

The mesh is ready. Send an event:
  curl -H "Authorization: Bearer \$(cat ${HIFI_SECRETS:-.run/secrets}/write_key)" -H 'Content-Type: application/json' \\
    -d '{"id": "o1", "customer": "c1", "amount": 12.5}' http://127.0.0.1:${port%%-*}/v1/pipes/orders/events
Show what arrived:
  docker exec hifi-destination-1 cat /var/lib/destination/books
The console: http://127.0.0.1:${HIFI_CONSOLE_PORT:-8090}/
Stop it: infra/docker/compose.sh -f infra/compose.yaml ${profiles[*]} down   (with --volumes, its data too)
END
