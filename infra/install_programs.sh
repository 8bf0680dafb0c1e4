#!/usr/bin/env bash
# Installs the programs of tests that no package of Python, Maven or Go has, where they are missing and apt-get is there:
# a browser for tests of the console, HAProxy for two colours and its image. Without a program its tests are skipped with
# a reason.
set -euo pipefail

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

missing=()
command -v chromium >/dev/null || missing+=(chromium)
[ -x /usr/sbin/haproxy ] || missing+=(haproxy)
if [ "${#missing[@]}" = 0 ] || ! command -v apt-get >/dev/null; then exit; fi
as_root apt-get -qq update || true
for program in "${missing[@]}"; do
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "$program" ||
        echo "$program cannot be installed: its tests will be skipped"
done
