"""Machines that do not answer, and pods for which no machine is found: report the nodes, and how they can start.

While Kubernetes cannot know whether a pod still runs, it does not start the pod elsewhere. It waits for the machine,
or for a person to mark the machine as off. The operator waits too, because two processes would damage one volume.
"""

from __future__ import annotations

from typing import Final

from kraft_operator.plan.model.situation import Situation

ON_ITS_DISKS: Final = "PersistentVolume's node affinity", "volume node affinity conflict"
"""Texts of the scheduler's message if machines were left out because a volume is on the disks of another machine."""


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


def report_unplaced(s: Situation) -> None:
    """Add a block to the plan for each pod that Kubernetes cannot place.

    If a machine is lost for good, its pods are made again. A pod whose volume is on the machine's own disks waits for
    the machine then.
    """
    for node in s.record.nodes:
        pod = s.kube.pods.get(node.id)
        if pod is None or not pod.unplaced or pod.terminating:
            continue
        text = f"no machine takes the pod of {node.kind}: {pod.message}"
        volume = s.kube.volumes.get((node.id, node.disk))
        if volume is not None and volume.machine and any(word in pod.message for word in ON_ITS_DISKS):
            text += f"; its volume is on the disks of machine {volume.machine}: bring that machine back. If it is lost"
            text += f" for good, replace the disk: kubectl kraft replace {node.id}"
        s.plan.block("Unschedulable", text)
