#!/usr/bin/env bash
# The end-to-end tests on kind, on a Debian machine without Docker and without a registry: offline.sh [arguments of kind.sh]
# Starts a Docker daemon in a network namespace of its own, builds the nodes' image and ours on Debian's Python 3.13, runs
# kind.sh there, and stops all of it. Needs root, Go, and package registries. KIND_BUILD names the folder that keeps what
# was built; KEEP=yes leaves the cluster and the daemon running.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
export KIND_BUILD=${KIND_BUILD:-${XDG_CACHE_HOME:-$HOME/.cache}/kind-node}
export KIND_NODE_IMAGE=${KIND_NODE_IMAGE:-localhost/kind-node:v1.36.3}
KIND=v0.33.0 HELM=v4.3.1 PYTHON_DEBIAN=trixie PYTHON_BASE=localhost/python-base:3.13
RUN=$KIND_BUILD/run
export DOCKER_HOST=unix://$RUN/docker.sock
export PATH=$KIND_BUILD/bin:$PATH
mkdir -p "$KIND_BUILD/bin" "$RUN"

packages() {
    local missing=() name
    for name in docker.io debootstrap buildah jq runc; do
        dpkg-query -W -f '${Status}' "$name" 2>/dev/null | grep -q 'ok installed' || missing+=("$name")
    done
    [ ${#missing[@]} -eq 0 ] || DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
    [ -x "$KIND_BUILD/bin/kind" ] || CGO_ENABLED=0 GOBIN=$KIND_BUILD/bin go install "sigs.k8s.io/kind@$KIND"
    [ -x "$KIND_BUILD/bin/helm" ] || CGO_ENABLED=0 GOBIN=$KIND_BUILD/bin go install "helm.sh/helm/v4/cmd/helm@$HELM"
}

daemon() { # dockerd with rules and addresses that nothing else on the machine sees
    if docker info >/dev/null 2>&1; then return; fi
    umount "$RUN/netns" 2>/dev/null || true
    : >"$RUN/netns"
    setsid unshare --net="$RUN/netns" --mount bash -c '
        ip link set lo up
        ip link add outside type bridge && ip addr add 172.31.255.1/24 dev outside && ip link set outside up
        ip route add default dev outside
        sysctl -qw net.ipv4.ip_forward=1
        exec dockerd --data-root "$1/docker" --exec-root "$2/exec" --pidfile "$2/docker.pid" --host "unix://$2/docker.sock" \
            --storage-driver overlay2 --add-runtime "granted=$3/runc.sh" --default-runtime granted
    ' dockerd "$KIND_BUILD" "$RUN" "$HERE" >"$KIND_BUILD/dockerd.log" 2>&1 </dev/null &
    for _ in $(seq 60); do
        if docker info >/dev/null 2>&1; then return; fi
        sleep 1
    done
    tail -20 "$KIND_BUILD/dockerd.log" >&2
    exit 1
}

finish() {
    [ "${KEEP:-}" != yes ] || return 0
    kind delete cluster --name kraft >/dev/null 2>&1 || true
    [ ! -f "$RUN/docker.pid" ] || kill "$(<"$RUN/docker.pid")"
    umount "$RUN/netns" 2>/dev/null || true
}

buildah() { command buildah --root "$KIND_BUILD/buildah" --runroot "$RUN/buildah" "$@"; }

python_base() { # Debian with its Python, as a base for our images
    [ -z "$(buildah images -q "$PYTHON_BASE" 2>/dev/null)" ] || return 0
    local root=$KIND_BUILD/python-root container
    rm -rf "$root"
    debootstrap --variant=minbase --include=ca-certificates,python3,python3-pip,python3-venv,tini,procps,iproute2 \
        "$PYTHON_DEBIAN" "$root" http://deb.debian.org/debian >"$KIND_BUILD/debootstrap.log" 2>&1
    rm -rf "$root"/usr/lib/python3*/EXTERNALLY-MANAGED "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/usr/share/{locale,man,info}
    ln -sfn python3 "$root/usr/bin/python"
    container=$(buildah from scratch)
    buildah add -q "$container" "$root" / >/dev/null
    buildah config --cmd '' --env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$container"
    buildah commit -q --rm "$container" "$PYTHON_BASE" >/dev/null
    rm -rf "$root"
}

image() { # NAME CONTEXT [buildah's arguments]: with what this machine has set for pip, which stays out of the image
    local name=$1 context=$2 certificates=/etc/ssl/certs/ca-certificates.crt folder
    shift 2
    folder=$(mktemp -d)
    {
        echo "[global]"
        pip config list 2>/dev/null | sed -nE "/cert|find-links/d; s/^(:env:|global|install)\.([a-z-]+)='(.*)'$/\2 = \3/p"
        echo "cert = $certificates"
    } | awk '!seen[$1]++' >"$folder/pip.conf"
    echo "deb http://deb.debian.org/debian $PYTHON_DEBIAN main" >"$folder/sources.list"
    buildah bud --isolation oci --runtime "$(command -v runc)" --network host --layers --pull-never \
        -v "$certificates:$certificates:ro" -v "$folder/pip.conf:/etc/pip.conf:ro" -v "$folder/sources.list:/etc/apt/sources.list:ro" \
        --build-arg "BASE=$PYTHON_BASE" -t "localhost/$name:dev" "$@" "$context" >"$KIND_BUILD/$name.log" 2>&1 \
        || { tail -20 "$KIND_BUILD/$name.log" >&2; exit 1; }
    buildah push -q "localhost/$name:dev" "docker-archive:$folder/image.tar:localhost/$name:dev"
    docker load -q -i "$folder/image.tar"
    rm -rf "$folder"
}

packages
trap finish EXIT
daemon
docker image inspect "$KIND_NODE_IMAGE" >/dev/null 2>&1 || "$HERE/node-image.sh" "$KIND_NODE_IMAGE"
python_base
image kraftcluster "$ROOT" --target node
image kraft-operator "$ROOT" --target operator
image kraft-e2e-client "$ROOT/e2e/client"
if [ $# -eq 0 ] || [[ " $* " == *" e2e "* || "$*" =~ test_(table|archive) ]]; then
    image kraft-pipeline "$ROOT" --target pipeline
fi
PREBUILT=yes nsenter --net="$RUN/netns" "$ROOT/e2e/kind.sh" "$@"
