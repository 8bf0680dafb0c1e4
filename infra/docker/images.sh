#!/usr/bin/env bash
# Builds all images, or the ones named as arguments.
#
#   infra/docker/images.sh                      # hifi-ingest:latest, hifi-normalize:latest, ...
#   infra/docker/images.sh lake                 # the one image that is built only when it is named
#   HIFI_TAG=1.2 infra/docker/images.sh egest   # hifi-egest:1.2
#
# BASE_IMAGE, COMPILER_IMAGE and JDK_IMAGE choose other base images. When they are not set and the public ones cannot be
# pulled, base images are made from this machine's Python (HIFI_BASE_PYTHON chooses another), gcc and JDK. Without a gcc
# the services run uncompiled. COMPILER_IMAGE needs the Python of BASE_IMAGE, and a C library that is not newer.
# HIFI_BUILD_ARGS are additional arguments of every `docker build`, such as "--build-arg PIP_INDEX_URL=…" in a network
# with a package mirror.
set -euo pipefail
cd "$(dirname "$0")/../.."

PUBLIC_PYTHON=python:3.12-slim
PUBLIC_COMPILER=python:3.12
PUBLIC_JDK=eclipse-temurin:17-jdk
OWN_PYTHON=hifi-base:python
OWN_COMPILER=hifi-base:compiler
OWN_JDK=hifi-base:jdk
PUBLIC_HAPROXY=haproxy:3.2
OWN_HAPROXY=hifi-base:haproxy
TAG=${HIFI_TAG:-latest}
ALL="kafka tools destination ingest collect normalize enrich egest retrier observe provision manage deploy scale connect haproxy"

say() { echo "images.sh: $*" >&2; }

there() { docker image inspect "$1" >/dev/null 2>&1; }

can_have() { there "$1" || timeout 60 docker pull --quiet "$1" >/dev/null 2>&1; }

# A Python of the public image's version, else the next supported one.
own_python() {
    local candidate
    for candidate in "${HIFI_BASE_PYTHON:-}" python3.12 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.12*/bin/python3.12 \
        python3.13 python3.11 python3; do
        if [ -n "$candidate" ] && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    say "no Python 3.11 or newer was found to make a base image from"
    exit 3
}

choose_bases() {
    if [ -z "${BASE_IMAGE:-}" ]; then
        if can_have "$PUBLIC_PYTHON"; then
            BASE_IMAGE=$PUBLIC_PYTHON
        else
            there "$OWN_PYTHON" || { say "making $OWN_PYTHON"; "$(own_python)" infra/docker/base_images.py python "$OWN_PYTHON"; }
            BASE_IMAGE=$OWN_PYTHON
        fi
    fi
    if [ -z "${COMPILER_IMAGE:-}" ]; then
        if [ "$BASE_IMAGE" != "$OWN_PYTHON" ] && can_have "$PUBLIC_COMPILER"; then
            COMPILER_IMAGE=$PUBLIC_COMPILER
        elif [ "$BASE_IMAGE" = "$OWN_PYTHON" ] && command -v gcc dpkg >/dev/null; then
            there "$OWN_COMPILER" || { say "making $OWN_COMPILER"; "$(own_python)" infra/docker/base_images.py compiler "$OWN_COMPILER"; }
            COMPILER_IMAGE=$OWN_COMPILER
        else
            say "no C compiler for $BASE_IMAGE: the services run uncompiled; set COMPILER_IMAGE"
            COMPILER_IMAGE=$BASE_IMAGE
        fi
    fi
    if [ -z "${JDK_IMAGE:-}" ]; then
        if [ "$BASE_IMAGE" != "$OWN_PYTHON" ] && can_have "$PUBLIC_JDK"; then
            JDK_IMAGE=$PUBLIC_JDK
        else
            there "$OWN_JDK" || { say "making $OWN_JDK"; "$(own_python)" infra/docker/base_images.py jdk "$OWN_JDK"; }
            JDK_IMAGE=$OWN_JDK
        fi
    fi
}

# HAProxy concerns one image only.
choose_haproxy() {
    [ -z "${HAPROXY_IMAGE:-}" ] || return 0
    if [ "$BASE_IMAGE" != "$OWN_PYTHON" ] && can_have "$PUBLIC_HAPROXY"; then
        HAPROXY_IMAGE=$PUBLIC_HAPROXY
    else
        there "$OWN_HAPROXY" || { say "making $OWN_HAPROXY"; "$(own_python)" infra/docker/base_images.py haproxy "$OWN_HAPROXY"; }
        HAPROXY_IMAGE=$OWN_HAPROXY
    fi
}

dockerfile() {
    if [ -f "services/$1/Dockerfile" ]; then echo "services/$1/Dockerfile"; else echo "infra/docker/$1/Dockerfile"; fi
}

# A service imports everything it may need at run time, so that a missing dependency is found here and not by a start.
IMPORT_ALL='import importlib, pkgutil, sys
package = importlib.import_module(sys.argv[1])
for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    importlib.import_module(module.name)'

check_imports() {
    docker run --rm --network none --entrypoint /opt/hifi/bin/python "hifi-$1:$TAG" -c "$IMPORT_ALL" "hifi_$1" >&2 && return
    say "hifi-$1:$TAG lacks what hifi_$1 imports: add it to services/$1/pyproject.toml and run requirements/lock.sh"
    exit 1
}

choose_bases
commit=$(git rev-parse --short=12 HEAD 2>/dev/null || true)
version=$(sed -n 's/^version = "\(.*\)"/\1/p' libs/pyproject.toml)
options=(--build-arg "BASE_IMAGE=$BASE_IMAGE" --build-arg "COMMIT=${HIFI_COMMIT:-$commit}")
read -r -a further <<<"${HIFI_BUILD_ARGS:-}"
options+=("${further[@]}")
# An engine without a default bridge reaches the network only through the host's.
docker network inspect bridge >/dev/null 2>&1 || options+=(--network host)
docker buildx version >/dev/null 2>&1 || export DOCKER_BUILDKIT=0

for image in ${*:-$ALL}; do
    file=$(dockerfile "$image")
    [ -f "$file" ] || { say "unknown image $image; expected one of $ALL"; exit 2; }
    own=("${options[@]}")
    grep -q '^ARG COMPILER_IMAGE' "$file" && own+=(--build-arg "COMPILER_IMAGE=$COMPILER_IMAGE")
    grep -q '^ARG JDK_IMAGE' "$file" && own+=(--build-arg "JDK_IMAGE=$JDK_IMAGE")
    if grep -q '^ARG HAPROXY_IMAGE' "$file"; then
        choose_haproxy
        own+=(--build-arg "HAPROXY_IMAGE=$HAPROXY_IMAGE")
    fi
    [[ "$image" = kafka || "$image" = connect ]] || own+=(--build-arg "VERSION=$version")
    started=$SECONDS
    log=$(docker build --quiet "${own[@]}" -f "$file" -t "hifi-$image:$TAG" . 2>&1) || { echo "$log" >&2; exit 1; }
    [ ! -f "services/$image/Dockerfile" ] || check_imports "$image"
    size=$(docker image inspect -f '{{.Size}}' "hifi-$image:$TAG")
    echo "hifi-$image:$TAG $((size / 1000000)) MB in $((SECONDS - started)) s"
done
