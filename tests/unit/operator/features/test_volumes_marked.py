"""Volumes count as formatted only if a job that has succeeded mounted them."""

from __future__ import annotations

import asyncio
import copy
from dataclasses import replace
from typing import Any

from kraft_operator.specs.storage import DISK, FORMATTED
from tests.unit.operator.fake_kubernetes import FakeApi
from tests.unit.operator.reconciling import KEY, new_api, new_operator, settle
from tests.unit.operator.world import made


class _Formats(FakeApi):
    """Also records which claims a finished job mounted."""

    def __init__(self) -> None:
        super().__init__()
        self.formatted: set[str] = set()

    def work(self) -> None:
        super().work()
        for (kind, *_), one in self.objects.items():
            if kind == "Job":
                volumes = one["spec"]["template"]["spec"]["volumes"]
                claims = (volume.get("persistentVolumeClaim", {}).get("claimName") for volume in volumes)
                self.formatted |= {claim for claim in claims if claim}


def test_a_volume_added_during_a_format_is_formatted() -> None:
    async def main() -> None:
        api: Any = _Formats()
        api.objects.update(new_api().objects)
        operator = new_operator(api)
        while not any(kind == "Job" and name.startswith("sample-101") for kind, _, name in api.objects):
            await operator.reconcile(KEY)
        volumes = api.objects["KRaftCluster", *KEY]["spec"]["nodePools"][1]["storage"]["volumes"]
        volumes.append({**volumes[0], "name": "more"})
        await settle(api, operator)
        marked = {
            name
            for (kind, _, name), one in api.objects.items()
            if kind == "PersistentVolumeClaim" and one["metadata"].get("annotations", {})
        }
        assert "more-sample-101-0" in marked
        assert marked <= api.formatted
        operator.close()

    asyncio.run(main())


def test_a_foreign_claim_is_not_deleted_with_the_resource() -> None:
    """A former cluster of the same name may have kept a claim with its data. No policy of this resource covers it."""

    async def main() -> None:
        api = new_api()
        api.objects["KRaftCluster", *KEY]["spec"]["nodePools"][1]["storage"]["deletionPolicy"] = "Delete"
        operator = new_operator(api)
        await settle(api, operator)
        foreign = copy.deepcopy(api.objects["PersistentVolumeClaim", "demo", "data-sample-101-0"])
        foreign["metadata"] |= {"name": "data-sample-101-1", "uid": "other", "ownerReferences": []}
        foreign["metadata"]["labels"][DISK] = "1"
        foreign["metadata"]["annotations"][FORMATTED] = "AnotherClusterAnotherC/101"
        api.objects["PersistentVolumeClaim", "demo", "data-sample-101-1"] = copy.deepcopy(foreign)
        api.objects["KRaftCluster", *KEY]["metadata"]["generation"] = 2
        for _ in range(3):
            await operator.reconcile(KEY)
        assert api.objects["PersistentVolumeClaim", "demo", "data-sample-101-1"] == foreign
        operator.close()

    asyncio.run(main())


def test_removing_a_node_keeps_foreign_volumes() -> None:
    world = made(brokers=4)
    pools = world.wanted.pools
    world.volumes[104, 1] = "AnotherClusterAnotherC/104"
    world.wanted = replace(world.wanted, pools=(pools[0], replace(pools[1], replicas=3, delete_volumes=True)))
    world.settle()
    assert (104, 0) not in world.volumes
    assert world.volumes[104, 1] == "AnotherClusterAnotherC/104"
