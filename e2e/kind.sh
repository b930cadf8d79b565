#!/usr/bin/env bash
# The end-to-end tests on kind: kind.sh [pytest's arguments]. Needs docker, kind and kubectl; leaves the cluster `kraft` there.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-.venv/bin/python}

kind get clusters | grep -qx kraft || kind create cluster --name kraft --config deploy/kind/cluster.yaml
docker build -q --target node -t localhost/kraftcluster:dev .
docker tag localhost/kraftcluster:dev localhost/kraftcluster:other
docker build -q --target operator -t localhost/kraft-operator:dev .
docker build -q -t localhost/kraft-e2e-client:dev e2e/client
kind load docker-image --name kraft localhost/kraftcluster:dev localhost/kraftcluster:other \
    localhost/kraft-operator:dev localhost/kraft-e2e-client:dev
KUBECONFIG=$(mktemp)
export KUBECONFIG
trap 'rm -f "$KUBECONFIG"' EXIT
kind get kubeconfig --name kraft >"$KUBECONFIG"
[ $# -gt 0 ] || set -- e2e
"$PYTHON" -m pytest -rs -s -p no:cacheprovider "$@"
