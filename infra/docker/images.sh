#!/usr/bin/env bash
# Builds all images, or the ones named as arguments: first what they share (base.Dockerfile), then each of them.
#
#   infra/docker/images.sh                      # hifi-ingest:latest, hifi-normalize:latest, ...
#   infra/docker/images.sh lake state view      # these are built only when they are named
#   infra/docker/images.sh all                  # also these
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
USUAL="kafka tools destination ingest collect normalize enrich egest retrier observe rollout manage deploy scale connect haproxy"
ALL="$USUAL lake state view"

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
        there "$OWN_HAPROXY" || {
            say "making $OWN_HAPROXY"
            PYTHONPATH=libs:infra "$(own_python)" -m hifi_infra.colours.haproxy_program >/dev/null
            "$(own_python)" infra/docker/base_images.py haproxy "$OWN_HAPROXY"
        }
        HAPROXY_IMAGE=$OWN_HAPROXY
    fi
}

# A service imports everything it may need at run time, so that a missing dependency is found here and not by a start;
# of its connectors, their sources or their destinations.
IMPORT_ALL='import importlib, os, pkgutil, sys
from importlib.metadata import entry_points
from importlib.util import find_spec
from hifi.runtime.compiled.import_hook import in_use
side = {"hifi_collect": "source", "hifi_egest": "destination", "hifi_lake": "destination"}.get(sys.argv[1])
kinds = entry_points(group=f"hifi.{side}s")
for name in [sys.argv[1], *{kind.value.partition(".")[0] + f".{side}" for kind in kinds}]:
    if not find_spec(name):
        continue
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
if os.path.isdir("/opt/hifi/compiled") and not in_use():
    sys.exit("the compiled modules do not match their sources")'

check_imports() {
    docker run --rm --network none --entrypoint /opt/hifi/bin/python "hifi-$1:$TAG" -c "$IMPORT_ALL" "hifi_$1" >&2 && return
    say "hifi-$1:$TAG lacks what hifi_$1 imports: add it to services/$1/pyproject.toml and run requirements/lock.sh"
    return 1
}

# Whether one of the images is among some others.
any() {
    local image
    for image in $IMAGES; do
        if [[ " $* " = *" $image "* ]]; then return 0; fi
    done
    return 1
}

# Builds targets of base.Dockerfile as hifi-base:<target>-$TAG.
build_base() {
    local target started
    for target in "$@"; do
        started=$SECONDS
        build -f infra/docker/base.Dockerfile --target "$target" -t "hifi-base:$target-$TAG" \
            --build-arg "BASE_IMAGE=$BASE_IMAGE" --build-arg "COMPILER_IMAGE=$COMPILER_IMAGE" --build-arg "JDK_IMAGE=$JDK_IMAGE"
        echo "hifi-base:$target-$TAG in $((SECONDS - started)) s"
    done
}

build() {
    local log
    for _ in 1 2; do
        if log=$(docker build "${options[@]}" "$@" . 2>&1); then return; fi
        # Docker's own builder can fail so after a layer that adds nothing (moby issue 37965).
        [[ "$log" = *"layer does not exist"* ]] || break
    done
    echo "$log" >&2
    return 1
}

about() { sed -n "s/^$2 = \"\(.*\)\"/\1/p" "$1/pyproject.toml"; }

build_image() {
    local image=$1 started=$SECONDS runtime file=infra/docker/$1/Dockerfile own=() port=
    case "$image" in
    haproxy) own=(--build-arg "HAPROXY_IMAGE=$HAPROXY_IMAGE") ;;
    kafka | connect) runtime=java ;;
    destination) runtime=runtime ;;
    enrich | lake | manage | state) runtime=spark ;;
    *) runtime=services ;;
    esac
    case "$image" in ingest) port=8080 ;; observe) port=9200 ;; manage) port=9300 ;; view) port=9400 ;; esac
    if [ -d "services/$image" ]; then
        file=infra/docker/service.Dockerfile
        own+=(--build-arg "SERVICE=$image" --build-arg "PORT=$port" --build-arg "DESCRIPTION=$(about "services/$image" description)")
    fi
    case "$image" in
    haproxy) ;;
    kafka | connect) own+=(--build-arg "RUNTIME=hifi-base:$runtime-$TAG" --build-arg "JARS=hifi-base:jars-$TAG") ;;
    *) own+=(--build-arg "RUNTIME=hifi-base:$runtime-$TAG" --build-arg "PARTS=hifi-base:parts-$TAG") ;;
    esac
    case "$image" in collect | lake | state) own+=(--build-arg "OWNED=/$image") ;; view) own+=(--build-arg OWNED=/views) ;; esac
    [[ "$image" = kafka || "$image" = connect ]] || own+=(--build-arg "VERSION=$(about libs version)")
    own+=(--build-arg "COMMIT=$COMMIT")
    build "${own[@]}" -f "$file" -t "hifi-$image:$TAG" || return
    echo "hifi-$image:$TAG $(($(docker image inspect -f '{{.Size}}' "hifi-$image:$TAG") / 1000000)) MB in $((SECONDS - started)) s"
}

IMAGES=${*:-$USUAL}
[ "$IMAGES" != all ] || IMAGES=$ALL
for image in $IMAGES; do
    [[ " $ALL " = *" $image "* ]] || { say "unknown image $image; expected all, or some of $ALL"; exit 2; }
done
choose_bases
! any haproxy || choose_haproxy
COMMIT=${HIFI_COMMIT:-$(git rev-parse --short=12 HEAD 2>/dev/null || true)}
read -r -a options <<<"--quiet ${HIFI_BUILD_ARGS:-}"
# An engine without a default bridge reaches the network only through the host's.
docker network inspect bridge >/dev/null 2>&1 || options+=(--network host)
docker buildx version >/dev/null 2>&1 || export DOCKER_BUILDKIT=0

# In the order of base.Dockerfile: the builder runs the stages before a target, too.
targets=(runtime)
if any kafka connect enrich lake manage state; then targets+=(java jars); fi
if [ "$(tr ' ' '\n' <<<"$IMAGES" | grep -cvx 'kafka\|connect\|haproxy')" -gt 0 ]; then targets+=(parts services); fi
if any enrich lake manage state; then targets+=(spark); fi
build_base "${targets[@]}"
# One build at a time: two that make the same layer at the same time can fail. Checks run beside the builds.
checks=()
for image in $IMAGES; do
    build_image "$image"
    if [ -d "services/$image" ]; then
        check_imports "$image" &
        checks+=($!)
    fi
done
failed=0
for check in "${checks[@]}"; do wait "$check" || failed=1; done
echo "all images in $SECONDS s"
exit "$failed"
