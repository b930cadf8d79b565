#!/usr/bin/env bash
# The end-to-end tests on kind: kind.sh [smoke | pytest's arguments]. Needs docker, kind and kubectl; leaves the cluster `kraft` there.
#   KIND_NODE_IMAGE  the nodes' image, if it is not kind's own (e2e/kind/node-image.sh builds one where that cannot be pulled)
#   BASE             the images' base, if it is not python:3.13-slim
#   PREBUILT         `yes`: the Docker daemon has the images of this checkout already
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-.venv/bin/python}
if [ "${PREBUILT:-}" != yes ] && ! docker info >/dev/null 2>&1; then
    exec e2e/kind/offline.sh "$@" # no Docker here: brings its own
fi
# kind cannot load images with attestations (kubernetes-sigs/kind#4236).
export BUILDX_NO_DEFAULT_ATTESTATIONS=1

# A file of its own: the user's current context stays what it is.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export KUBECONFIG=$folder/config

# A kubelet of 1.35 or later refuses cgroup v1 unless its configuration allows it.
config=deploy/kind/cluster.yaml
[ -f /sys/fs/cgroup/cgroup.controllers ] || config=e2e/kind/old-cgroups.yaml
image=()
[ -z "${KIND_NODE_IMAGE:-}" ] || image=(--image "$KIND_NODE_IMAGE")

if [[ " $(kind get clusters | tr '\n' ' ') " == *" kraft "* ]]; then
    kind export kubeconfig --name kraft
else
    kind create cluster --name kraft --config "$config" "${image[@]}" --wait 5m
fi
build() { # NAME CONTEXT [TARGET]
    docker build -q ${BASE:+--build-arg "BASE=$BASE"} ${3:+--target "$3"} -t "localhost/$1:dev" "$2"
}
images=(kraftcluster:dev kraftcluster:other kraft-operator:dev kraft-operator:other kraft-e2e-client:dev)
if [ "${PREBUILT:-}" != yes ]; then
    build kraftcluster . node
    build kraft-operator . operator
    build kraft-e2e-client e2e/client
fi
if [ $# -eq 0 ] || [[ " $* " == *" e2e "* || "$*" =~ test_(table|archive) ]]; then # it has Spark and Java: minutes, the first time
    [ "${PREBUILT:-}" = yes ] || build kraft-pipeline . pipeline
    images+=(kraft-pipeline:dev)
fi
docker tag localhost/kraftcluster:dev localhost/kraftcluster:other
docker tag localhost/kraft-operator:dev localhost/kraft-operator:other
kind load docker-image --name kraft "${images[@]/#/localhost/}"
[ "${1:-}" != smoke ] || { shift; set -- e2e/test_smoke.py "$@"; }
[ $# -gt 0 ] || set -- e2e
"$PYTHON" -m pytest -rs -s -p no:cacheprovider "$@"
