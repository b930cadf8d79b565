"""The operator for `kopf run -m kraft_operator.app`: for development, with kopf's own options.

    export KRAFT_NAMESPACES=demo KRAFT_NODE_IMAGE=kraftcluster:dev
    kopf run -m kraft_operator.app -n demo --standalone --liveness=http://127.0.0.1:8081/healthz

It runs on your machine with your kubeconfig, and must reach the addresses of pods. Without KRAFT_LEASE it starts to
work at once, so scale the operator in the cluster to 0 first.
"""

from __future__ import annotations

import os

import kopf

from kraft_operator.handlers import register
from kraft_operator.leader import Operator
from kraft_operator.settings import Settings

_settings = Settings.of(os.environ)
register(kopf.get_default_registry(), Operator(_settings), _settings)
