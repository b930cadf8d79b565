#!/usr/bin/env bash
# The end-to-end tests on the lab (a Kubernetes of plain processes): lab.sh [install | smoke | chaos | pytest's arguments]
# Brings the lab up, builds the images, runs the tests, brings the lab down. Says so and ends well where there is no lab.
set -euo pipefail
cd "$(dirname "$0")/.."
SCRIPTS=${K8S_LAB_SCRIPTS:-../shared/k8s}
LAB=${K8S_LAB:-${XDG_CACHE_HOME:-$HOME/.cache}/k8s-lab}
PYTHON=${PYTHON:-.venv/bin/python}

if [ ! -x "$SCRIPTS/up.sh" ]; then
    echo "e2e: SKIPPED, no lab: $SCRIPTS/up.sh is not there (K8S_LAB_SCRIPTS names its folder)"
    exit 0
fi
if [ "$(id -u)" != 0 ]; then
    echo "e2e: SKIPPED, no lab: it needs root"
    exit 0
fi
SCRIPTS=$(cd "$SCRIPTS" && pwd)
if [ "${1:-}" = install ]; then # only the programs and the base image, in time that nothing else wants
    { echo 19 >/proc/self/autogroup; } 2>/dev/null || true # nice alone counts within a session
    exec nice -n 19 "$SCRIPTS/install.sh"
fi
was_up=$([ -S "$LAB/run/containerd.sock" ] && echo yes || echo no)
finish() { [ "$was_up" = yes ] || "$SCRIPTS/down.sh" >/dev/null; }
trap finish EXIT

"$SCRIPTS/up.sh"
. "$LAB/env"
base=(--build-arg BASE=localhost/python-base:3.11)
"$SCRIPTS/image.sh" kraftcluster:dev . "${base[@]}" --target node >/dev/null
"$SCRIPTS/image.sh" kraft-operator:dev . "${base[@]}" --target operator >/dev/null
if [ "${1:-}" != smoke ]; then # the same under other names, for rolls of an image; each is written and imported again
    "$SCRIPTS/image.sh" kraftcluster:other . "${base[@]}" --target node >/dev/null
    "$SCRIPTS/image.sh" kraft-operator:other . "${base[@]}" --target operator >/dev/null
fi
"$SCRIPTS/image.sh" kraft-e2e-client:dev e2e/client "${base[@]}" >/dev/null
if [ $# -eq 0 ] || [[ " $* " == *" e2e "* || "$*" =~ test_(table|archive) ]]; then # it has Spark and Java: minutes, the first time
    "$SCRIPTS/image.sh" kraft-pipeline:dev . "${base[@]}" --target pipeline >/dev/null
fi
PEERS=${KRAFT_PEER_HOME:-.peers}
if { [ $# -eq 0 ] || [[ " $* " == *" e2e "* || "$*" == *test_migration* ]]; } && [ -f "$PEERS/3.9.2/lib/.complete" ]; then
    "$SCRIPTS/image.sh" kraft-e2e-released:dev "$PEERS/3.9.2" "$PWD/e2e/migration/Dockerfile" "${base[@]}" >/dev/null
    export E2E_RELEASED_KAFKA_IMAGE=localhost/kraft-e2e-released:dev
fi

export E2E_MACHINES="$SCRIPTS/node.sh" E2E_API_RESTART=$PWD/e2e/chaos/restart-api.sh K8S_LAB_SCRIPTS=$SCRIPTS
if [ "${1:-}" = smoke ]; then
    shift
    set -- e2e/test_smoke.py "$@"
elif [ "${1:-}" = chaos ]; then
    shift
    set -- e2e/test_chaos.py "$@"
    # Three machines, so that no machine has a majority of the voters or two replicas of a partition.
    for machine in ${E2E_CHAOS_MACHINE:+2 3}; do
        [ -d "$LAB/run/lab$machine" ] || "$SCRIPTS/node.sh" add "$machine" >/dev/null
    done
fi
[ $# -gt 0 ] || set -- e2e
"$PYTHON" -m pytest -rs -s -p no:cacheprovider "$@"
