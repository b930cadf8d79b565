"""Ownership of objects: volumes, services, configurations, pods; which are adopted, restored or left alone."""

from __future__ import annotations

import asyncio
import contextlib
import copy
from typing import Any

from kraft_operator.kube.client import ApiError
from kraft_operator.specs.pods import config_name
from tests.unit.operator.fake_kubernetes import FakeApi
from tests.unit.operator.reconciling import KEY, SIX, condition, new_api, new_operator, pods_of, settle


def test_owned_objects_have_one_owner_and_volumes_none() -> None:
    async def main() -> None:
        api = new_api()
        operator = new_operator(api)
        await settle(api, operator)
        for (kind, _, name), one in api.objects.items():
            owners = one["metadata"].get("ownerReferences", [])
            if kind in {"KRaftCluster", "PersistentVolumeClaim", "Event"} or name == "sample-record":
                assert not owners, name
            else:
                assert [owner["uid"] for owner in owners] == ["u"], name
        operator.close()

    asyncio.run(main())


def test_volumes_are_deleted_with_the_resource_only_while_requested() -> None:
    async def main() -> None:
        api = new_api()
        api.objects["KRaftCluster", *KEY]["spec"]["nodePools"][1]["storage"]["deletionPolicy"] = "Delete"
        operator = new_operator(api)
        await settle(api, operator)

        def owned() -> set[str]:
            there = {name: one for (kind, _, name), one in api.objects.items() if kind == "PersistentVolumeClaim"}
            assert len(there) == 6
            return {name for name, one in there.items() if one["metadata"].get("ownerReferences")}

        assert owned() == {"data-sample-101-0", "data-sample-102-0", "data-sample-103-0"}
        other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "mine", "uid": "m"}
        api.objects["PersistentVolumeClaim", "demo", "data-sample-1-0"]["metadata"]["ownerReferences"] = [other]
        resource = api.objects["KRaftCluster", *KEY]
        for pool, policy in zip(resource["spec"]["nodePools"], ("Delete", "Keep"), strict=True):
            pool["storage"]["deletionPolicy"] = policy
        resource["metadata"]["generation"] = 2
        await operator.reconcile(KEY)
        assert owned() == {"data-sample-1-0", "data-sample-2-0", "data-sample-3-0"}
        found = api.objects["PersistentVolumeClaim", "demo", "data-sample-1-0"]["metadata"]["ownerReferences"]
        assert [one["uid"] for one in found] == ["m", "u"]
        operator.close()

    asyncio.run(main())


def test_an_edited_service_is_restored_by_the_next_operator() -> None:
    async def main() -> None:
        api = new_api()
        operator = new_operator(api)
        await settle(api, operator)
        operator.close()
        service = api.objects["Service", "demo", "sample-nodes"]
        service["spec"]["publishNotReadyAddresses"] = False
        again = new_operator(api)
        await again.reconcile(KEY)
        assert api.objects["Service", "demo", "sample-nodes"]["spec"]["publishNotReadyAddresses"] is True
        again.close()

    asyncio.run(main())


def test_objects_of_a_pipeline_with_the_same_name_are_left_alone() -> None:
    async def main() -> None:
        api = new_api()
        labels = {"app.kubernetes.io/instance": "sample", "app.kubernetes.io/managed-by": "kraft-operator"}
        labels["app.kubernetes.io/name"] = "kraft-pipeline"
        metadata = {"name": "sample-table", "namespace": "demo", "uid": "other", "labels": labels}
        theirs = api.objects["ConfigMap", "demo", "sample-table"] = {"metadata": metadata, "data": {}}
        operator = new_operator(api)
        await settle(api, operator)
        assert api.objects["ConfigMap", "demo", "sample-table"] is theirs
        operator.close()

    asyncio.run(main())


def test_foreign_objects_are_neither_adopted_nor_deleted() -> None:
    """Names contain the cluster's name: a-1-x is a service of cluster a-1, and of broker 1 of cluster a."""

    async def main() -> None:
        api = new_api()
        service = {"kind": "Service", "metadata": {"name": "sample-102-external", "namespace": "demo", "uid": "s"}}
        labels = {"app.kubernetes.io/name": "kraftcluster", "app.kubernetes.io/instance": "sample"}
        helms = {"kind": "Service", "metadata": {"name": "sample-dashboard", "namespace": "demo", "labels": labels}}
        claim = {"kind": "PersistentVolumeClaim", "metadata": {"name": "data-sample-103-0", "namespace": "demo"}}
        foreign = [service, helms, claim]
        for one in foreign:
            api.objects[one["kind"], "demo", one["metadata"]["name"]] = copy.deepcopy(one)
        operator = new_operator(api)
        for _ in range(12):
            with contextlib.suppress(ApiError):
                await operator.reconcile(KEY)
            api.work()
        assert [api.objects[one["kind"], "demo", one["metadata"]["name"]] for one in foreign] == foreign
        assert pods_of(api) == ["sample-1", "sample-101", "sample-2", "sample-3"], "all others go on"
        degraded = condition(api, "Degraded")
        assert degraded["reason"] == "StepRefused"
        assert "Service sample-102-external exists and belongs to another owner" in degraded["message"]
        for one in (service, claim):
            del api.objects[one["kind"], "demo", one["metadata"]["name"]]
        await settle(api, operator)
        operator.close()

    asyncio.run(main())


def test_services_of_brokers_of_a_removed_pool_are_kept() -> None:
    async def main() -> None:
        api = new_api()
        operator = new_operator(api)
        await settle(api, operator)
        resource = api.objects["KRaftCluster", *KEY]
        del resource["spec"]["nodePools"][1]
        resource["metadata"]["generation"] = 2
        del api.objects["Service", "demo", "sample-102-external"]
        for _ in range(3):
            await operator.reconcile(KEY)
        assert [node["leaving"] for node in api.objects["KRaftCluster", *KEY]["status"]["nodes"]] == [False] * 3 + [
            True
        ] * 3
        assert ("Service", "demo", "sample-101-external") in api.objects
        operator.close()

    asyncio.run(main())


def test_a_deleted_service_of_a_broker_is_recreated() -> None:
    async def main() -> None:
        api = new_api()
        operator = new_operator(api)
        await settle(api, operator)
        there = api.objects.pop(("Service", "demo", "sample-102-external"))
        for _ in range(2):
            await operator.reconcile(KEY)
        made = api.objects["Service", "demo", "sample-102-external"]
        assert made["spec"]["selector"] == there["spec"]["selector"]
        assert made["spec"]["ports"] != there["spec"]["ports"], "another port: the broker needs a restart"
        (node,) = [one for one in api.objects["KRaftCluster", *KEY]["status"]["nodes"] if one["needsRestart"]]
        assert (node["id"], node["needsRestart"]) == (102, ["addresses"])
        operator.close()

    asyncio.run(main())


def test_objects_of_a_removed_node_are_deleted() -> None:
    async def main() -> None:
        api = new_api()
        operator = new_operator(api)
        await settle(api, operator)
        stray = copy.deepcopy(_config(api, "sample-101"))
        stray["metadata"] |= {"name": "sample-199", "labels": {**stray["metadata"]["labels"]}}
        stray["metadata"]["labels"]["kraftcluster.io/node"] = "199"
        await api.create(stray)
        again = new_operator(api)
        await again.reconcile(KEY)
        assert ("ConfigMap", "demo", "sample-199") not in api.objects
        assert _config(api, "sample-101")
        operator.close()
        again.close()

    asyncio.run(main())


def _config(api: FakeApi, pod: str) -> dict[str, Any]:
    """The ConfigMap that a pod refers to."""
    name = config_name(api.objects["Pod", "demo", pod]["spec"])
    return api.objects["ConfigMap", "demo", str(name)]


def test_a_configuration_is_named_by_its_content_and_never_changes() -> None:
    """A ConfigMap with a fixed name started old voters under new annotations, from a kubelet's stale copy."""

    async def main() -> None:
        api = new_api()
        operator = new_operator(api)
        await settle(api, operator)
        before = copy.deepcopy(_config(api, "sample-101"))
        assert before["immutable"]
        revision = before["metadata"]["name"].rpartition("-")[2]
        assert f"config.revision={revision}\n" in before["data"]["server.properties"]
        api.objects["KRaftCluster", *KEY]["spec"]["config"]["num.partitions"] = "7"
        del api.objects["Pod", "demo", "sample-101"]
        for _ in range(3):
            await operator.reconcile(KEY)
        after = _config(api, "sample-101")
        assert after["metadata"]["name"] != before["metadata"]["name"]
        assert "num.partitions=7" in after["data"]["server.properties"]
        again = new_operator(api)
        await again.reconcile(KEY)
        assert ("ConfigMap", "demo", before["metadata"]["name"]) not in api.objects, "nobody refers to it any more"
        assert _config(api, "sample-102")
        operator.close()
        again.close()

    asyncio.run(main())


def test_a_configuration_is_restored_while_its_pod_exists() -> None:
    """After a restart of the machine the broker was stuck in ContainerCreating, and Ready was True."""

    async def main() -> None:
        api = new_api()
        operator = new_operator(api)
        await settle(api, operator)
        lost = copy.deepcopy(_config(api, "sample-101"))
        name = lost["metadata"]["name"]
        del api.objects["ConfigMap", "demo", name]
        for fault in (ApiError(403, "Forbidden", "no ConfigMaps today"), None):
            api.before = lambda _verb, kind, _name, fault=fault: fault if kind == "ConfigMap" else None
            with contextlib.suppress(ApiError):
                await operator.reconcile(KEY)
            if fault is not None:
                ready = condition(api, "Ready")
                assert ready["status"] == "False"
                assert f"broker 101: ConfigMap {name} is missing" in ready["message"]
        made = api.objects["ConfigMap", "demo", name]
        assert made["data"] == lost["data"]
        operator.close()

    asyncio.run(main())


def test_an_unrestorable_configuration_is_named_and_its_stopped_pod_recreated() -> None:
    async def main() -> None:
        api = new_api()
        operator = new_operator(api)
        await settle(api, operator)
        name = _config(api, "sample-101")["metadata"]["name"]
        del api.objects["ConfigMap", "demo", name]
        spec = api.objects["KRaftCluster", *KEY]["spec"]
        spec["config"]["log.retention.ms"] = "77777777"  # needs no restart
        spec["updateStrategy"] = {"paused": True}
        for _ in range(2):
            await operator.reconcile(KEY)
        assert ("ConfigMap", "demo", name) not in api.objects
        assert condition(api, "Ready")["status"] == "False"
        degraded = condition(api, "Degraded")
        assert (degraded["status"], degraded["reason"]) == ("True", "ConfigLost")
        assert f"ConfigMap {name} of broker 101 is gone" in degraded["message"]
        assert "it restarts as soon as that is safe" in degraded["message"]
        uid = api.objects["Pod", "demo", "sample-101"]["metadata"]["uid"]
        waiting = {"state": {"waiting": {"reason": "CreateContainerConfigError"}}, "restartCount": 0}
        api.objects["Pod", "demo", "sample-101"]["status"]["containerStatuses"] = [waiting]
        for _ in range(4):
            await operator.reconcile(KEY)
            api.work()
        assert api.objects["Pod", "demo", "sample-101"]["metadata"]["uid"] != uid
        assert "log.retention.ms=77777777" in _config(api, "sample-101")["data"]["server.properties"]
        operator.close()

    asyncio.run(main())


def test_a_pod_of_an_older_operator_keeps_its_configuration() -> None:
    async def main() -> None:
        api = new_api()
        operator = new_operator(api)
        await settle(api, operator)
        pod = api.objects["Pod", "demo", "sample-101"]
        pod["spec"]["volumes"][0]["configMap"]["name"] = "sample-101"
        for _ in range(2):
            await operator.reconcile(KEY)
        restored = _config(api, "sample-101")
        assert restored["metadata"]["name"] == "sample-101"
        assert "immutable" not in restored
        again = new_operator(api)
        await again.reconcile(KEY)
        assert _config(api, "sample-101")
        operator.close()
        again.close()

    asyncio.run(main())


def test_a_pod_with_copied_labels_is_not_taken_for_a_node() -> None:
    """`kubectl debug --copy-to` copies labels: the copy appeared as the node, and would have been deleted."""

    async def main() -> None:
        api = new_api()
        operator = new_operator(api)
        await settle(api, operator)
        copied = copy.deepcopy(api.objects["Pod", "demo", "sample-101"])
        copied["metadata"] |= {"name": "zz-debug", "uid": "copy"}
        del copied["metadata"]["ownerReferences"]
        copied["status"] = {"phase": "Failed", "conditions": []}
        api.objects["Pod", "demo", "zz-debug"] = copied
        for _ in range(3):
            await operator.reconcile(KEY)
        assert "deletionTimestamp" not in api.objects["Pod", "demo", "zz-debug"]["metadata"]
        node = next(one for one in api.objects["KRaftCluster", *KEY]["status"]["nodes"] if one["id"] == 101)
        assert node["state"] == "Ready"
        operator.close()

    asyncio.run(main())


def test_orphaned_pods_are_adopted_by_a_resource_of_their_name() -> None:
    async def main() -> None:
        api = new_api()
        operator = new_operator(api)
        await settle(api, operator)
        for name in SIX:
            del api.objects["Pod", "demo", name]["metadata"]["ownerReferences"]
        uids = [api.objects["Pod", "demo", name]["metadata"]["uid"] for name in SIX]
        again = new_operator(api)
        for _ in range(3):
            await again.reconcile(KEY)
        assert [api.objects["Pod", "demo", name]["metadata"]["uid"] for name in SIX] == uids
        owners = [api.objects["Pod", "demo", name]["metadata"]["ownerReferences"][0]["uid"] for name in SIX]
        assert owners == ["u"] * 6
        operator.close()
        again.close()

    asyncio.run(main())


def test_claims_owned_by_a_former_resource_are_not_adopted() -> None:
    """A resource that was deleted and applied again adopted volumes that the garbage collector was about to delete."""

    async def main() -> None:
        api = new_api()
        for pool in api.objects["KRaftCluster", *KEY]["spec"]["nodePools"]:
            pool["storage"]["deletionPolicy"] = "Delete"
        operator = new_operator(api)
        await settle(api, operator)
        first = api.objects["KRaftCluster", *KEY]
        old = {key[2]: one["metadata"]["uid"] for key, one in api.objects.items() if key[0] == "PersistentVolumeClaim"}
        for key in [key for key in api.objects if key[0] in {"Pod", "Job"}]:
            del api.objects[key]
        del first["status"]
        del api.objects["ConfigMap", "demo", "sample-record"]
        first["metadata"]["uid"] = "v"
        again = new_operator(api)
        for _ in range(4):
            with contextlib.suppress(ApiError):
                await again.reconcile(KEY)
            api.work()
        assert pods_of(api) == [], "nothing runs on them"
        reported = " ".join(api.objects["KRaftCluster", *KEY]["status"]["plan"])
        assert "goes with the KRaftCluster of uid u" in reported
        for key, one in list(api.objects.items()):
            if any(owner["uid"] == "u" for owner in one["metadata"].get("ownerReferences", ())):
                del api.objects[key]  # the garbage collector
        await settle(api, again)
        made = {key[2]: one["metadata"]["uid"] for key, one in api.objects.items() if key[0] == "PersistentVolumeClaim"}
        assert made.keys() == old.keys()
        assert not set(made.values()) & set(old.values())
        operator.close()
        again.close()

    asyncio.run(main())
