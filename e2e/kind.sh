#!/usr/bin/env bash
# The end-to-end tests on kind: kind.sh [pytest's arguments]. Needs docker, kind and kubectl; leaves the cluster `kraft` there.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-.venv/bin/python}
# kind cannot load images with attestations (kubernetes-sigs/kind#4236).
export BUILDX_NO_DEFAULT_ATTESTATIONS=1

# A file of its own: the user's current context stays what it is.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export KUBECONFIG=$folder/config

if [[ " $(kind get clusters | tr '\n' ' ') " == *" kraft "* ]]; then
    kind export kubeconfig --name kraft
else
    kind create cluster --name kraft --config deploy/kind/cluster.yaml --wait 3m
fi
docker build -q --target node -t localhost/kraftcluster:dev .
docker tag localhost/kraftcluster:dev localhost/kraftcluster:other
docker build -q --target operator -t localhost/kraft-operator:dev .
docker tag localhost/kraft-operator:dev localhost/kraft-operator:other
docker build -q --target pipeline -t localhost/kraft-pipeline:dev .
docker build -q -t localhost/kraft-e2e-client:dev e2e/client
kind load docker-image --name kraft localhost/kraftcluster:dev localhost/kraftcluster:other \
    localhost/kraft-operator:dev localhost/kraft-operator:other \
    localhost/kraft-pipeline:dev localhost/kraft-e2e-client:dev
[ $# -gt 0 ] || set -- e2e
"$PYTHON" -m pytest -rs -s -p no:cacheprovider "$@"
