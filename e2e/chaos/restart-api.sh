#!/usr/bin/env bash
# Kills the lab's API server, by its process id, and starts it again: restart-api.sh
set -euo pipefail
LAB=${K8S_LAB:-${XDG_CACHE_HOME:-$HOME/.cache}/k8s-lab}
kill -9 "$(cat "$LAB/run/kube-apiserver.pid")"
sleep 2
"${K8S_LAB_SCRIPTS:?}/up.sh"
