"""Another image: rolled node by node under load.

An image that does not exist stops the roll at its first node, and a corrected one continues from there.
"""

from __future__ import annotations

from e2e.kube import NODE_IMAGE, OTHER_IMAGE, Cluster, Workload, needs_kubernetes, timed, until

pytestmark = needs_kubernetes


def _images(cluster: Cluster) -> set[str]:
    return {pod["spec"]["containers"][0]["image"] for pod in cluster.pods().values()}


def test_a_new_image_is_rolled_out_without_losing_a_record(cluster: Cluster) -> None:
    with Workload(cluster) as work, timed("roll of six nodes"):
        cluster.change(image=OTHER_IMAGE)
        cluster.settle()
    assert _images(cluster) == {OTHER_IMAGE}
    work.assert_nothing_lost()


def test_a_missing_image_stops_only_one_node(cluster: Cluster) -> None:
    before = cluster.uids()
    cluster.change(image="localhost/kraftcluster:no-such")

    def stopped() -> bool:
        lines = " ".join(cluster.status.get("plan", ()))
        return "ErrImage" in lines or "ImagePull" in lines

    until("the status names the image", stopped)
    changed = {number for number, uid in cluster.uids().items() if uid != before.get(number)}
    assert len(changed) == 1, "the roll has stopped at its first node"
    assert cluster.condition("Ready")["status"] == "False"
    cluster.change(image=NODE_IMAGE)
    cluster.settle()
    assert _images(cluster) == {NODE_IMAGE}
