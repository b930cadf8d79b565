"""Machines that do not answer: who is down with them, and what lets their nodes go on elsewhere.

Kubernetes does not start a pod elsewhere while it cannot know whether the pod still runs: it waits for the machine, or
for somebody who says that the machine is off. Nor does the operator: two processes on one volume would damage it.
"""

from __future__ import annotations

from kraft_operator.plan.situation import Situation


def tell_lost(s: Situation) -> None:
    """Block one line a machine."""
    machines: dict[str, list[str]] = {}
    for node in s.record.nodes:
        pod = s.kube.pods.get(node.id)
        if pod is not None and pod.lost:
            machines.setdefault(pod.machine, []).append(node.kind)
    for machine, nodes in sorted(machines.items()):
        s.plan.block(
            "MachineLost",
            f"machine {machine} does not answer, and {', '.join(nodes)} went down with it:"
            f" bring it back; if it is off for good, kubectl taint nodes {machine}"
            " node.kubernetes.io/out-of-service=nodeshutdown:NoExecute (or delete their pods with --force), and replace"
            " the disk of each node whose volume was on it",
        )
