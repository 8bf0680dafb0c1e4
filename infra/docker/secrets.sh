#!/usr/bin/env bash
# Makes the secrets of the example deployment in a folder, each where it is missing, readable for the containers'
# user (10001) and nobody else where we are root, else for everybody on this machine who may enter the folder's parent.
#
#   infra/docker/secrets.sh .run/secrets
set -euo pipefail

folder=${1:?name a folder}
mkdir -p "$folder"

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
# As Standard Webhooks has it.
make_secret signing_key "whsec_$(random 32)"
