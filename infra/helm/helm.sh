#!/usr/bin/env bash
# Runs Helm 3: the installed one, else one built from source through Go's module proxy (a minute, once; kept in the
# user's cache folder).
#
#   infra/helm/helm.sh template try infra/helm/hifi
#   infra/helm/helm.sh --which          # prints the command, runs nothing; exit status 3 where there is none
set -euo pipefail

VERSION=v3.22.0
# What `helm template` takes the cluster for.
KUBERNETES="-X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=37"
HERE=$(cd "$(dirname "$0")" && pwd)
BUILT="${XDG_CACHE_HOME:-$HOME/.cache}/hifi/helm-$VERSION"

say() { echo "helm.sh: $*" >&2; }

build() {
    command -v go >/dev/null || return 1
    mkdir -p "$(dirname "$BUILT")"
    exec 9>"$BUILT.lock"
    flock 9  # another process may be building it
    if [ -x "$BUILT" ]; then return; fi
    say "building Helm $VERSION (a minute or two, once)"
    (cd "$HERE/tool" && CGO_ENABLED=0 go build -p=1 -mod=readonly -trimpath -buildvcs=false \
        -ldflags "-s -w -X helm.sh/helm/v3/internal/version.version=$VERSION $KUBERNETES" \
        -o "$BUILT.$$" helm.sh/helm/v3/cmd/helm) >&2 && mv "$BUILT.$$" "$BUILT"
}

if helm version --short 2>/dev/null | grep -q '^v3\.'; then
    command=(helm)
elif [ -x "$BUILT" ] || build; then
    command=("$BUILT")
else
    say "Helm 3 is missing; install it, or Go to build it here"
    exit 3
fi
if [ "${1:-}" = --which ]; then echo "${command[@]}"; else exec "${command[@]}" "$@" 9>&-; fi
