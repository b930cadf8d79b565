"""Machines that do not answer: report their nodes, and how these nodes can start elsewhere.

While Kubernetes cannot know whether a pod still runs, it does not start the pod elsewhere. It waits for the machine,
or for a person to mark the machine as off. The operator waits too, because two processes would damage one volume.
"""

from __future__ import annotations

from kraft_operator.plan.model.situation import Situation


def report_lost(s: Situation) -> None:
    """Add one block to the plan for each machine that does not answer."""
    machines: dict[str, list[str]] = {}
    for node in s.record.nodes:
        pod = s.kube.pods.get(node.id)
        if pod is not None and pod.lost:
            machines.setdefault(pod.machine, []).append(node.kind)
    for machine, nodes in sorted(machines.items()):
        s.plan.block(
            "MachineLost",
            f"machine {machine} does not answer, and {', '.join(nodes)} went down with it: bring it back. If it is"
            f" off for good, kubectl taint nodes {machine} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
            " (or delete their pods with --force), and replace the disk of each node with a volume on it",
        )
