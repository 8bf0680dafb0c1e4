#!/usr/bin/env bash
# Makes the secrets of the example deployment in a folder, each where it is missing, readable for the containers'
# user (10001) and nobody else where we are root, else for everybody on this machine who may enter the folder's parent.
# The certificates and passwords for Kafka, and the key that signs reports, are made by the image hifi-tools, readable for
# user 10001 only.
#
#   infra/docker/secrets.sh .run/secrets
#
# Variables: HIFI_TAG of the image (latest), HIFI_STREAM (hifi), KAFKA_HOSTS: host names of the brokers ("kafka kafka-2
# kafka-3", and those of two colours).
set -euo pipefail

folder=${1:?name a folder}
mkdir -p "$folder/database" "$folder/front"  # for passwords of databases, and a certificate, which are yours

make_secret() {
    local file="$folder/$1"
    [ -s "$file" ] && return
    (umask 077 && printf '%s\n' "$2" >"$file")
    if [ "$(id -u)" = 0 ]; then chown 10001:10001 "$file" && chmod 400 "$file"; else chmod 444 "$file"; fi
    echo "made $file"
}

random() { head -c "$1" /dev/urandom | base64 | tr -d '\n'; }

make_secret write_key "$(random 24 | tr '+/' '-_')"
make_secret mask_key "$(random 32)"
# Token of the first administrator of observe and the management API; that with which observe reads the other colour.
make_secret manage_token "hifi_$(random 32 | tr '+/' '-_' | tr -d =)"
make_secret observe_token "hifi_$(random 32 | tr '+/' '-_' | tr -d =)"
# Of your OpenID Connect client; empty: a public one.
make_secret oidc_client_secret ""
# With it deploy and scale tell the executor to start and stop containers.
make_secret executor_secret "$(random 32)"
# With it collect declares connectors to Kafka Connect.
make_secret connect_credentials "http://connect:8083 hifi $(random 24 | tr '+/' '-_')"
make_secret spark_secret "$(random 32)"
# As Standard Webhooks has it.
make_secret signing_key "whsec_$(random 32)"

hosts=()
for host in ${KAFKA_HOSTS:-kafka kafka-2 kafka-3 blue-kafka green-kafka control-kafka}; do hosts+=(--host "$host"); done
DOCKER_HOST=${DOCKER_HOST:-$("$(dirname "$0")/engine.sh")}
export DOCKER_HOST
# As root, for the files to belong to user 10001; it has no network and sees this folder only.
docker run --rm --network none --read-only --user 0:0 --cap-drop ALL --cap-add CHOWN --cap-add DAC_OVERRIDE --cap-add FOWNER \
    --volume "$(cd "$folder" && pwd):/secrets" "hifi-tools:${HIFI_TAG:-latest}" \
    hifi_infra.kafka.make_credentials /secrets/kafka --report-key /secrets/report_key --stream "${HIFI_STREAM:-hifi}" \
    --owner 10001 "${hosts[@]}"
