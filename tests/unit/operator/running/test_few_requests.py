"""The cost of a start: steps follow each other without needless looks, and nothing is read or reported twice."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tests.unit.operator.fake_kubernetes import Crash
from tests.unit.operator.reconciling import KEY, SIX, new_api, new_operator, pods_of, settle


def test_the_first_pass_writes_the_record_and_then_makes_volumes() -> None:
    async def main() -> None:
        api = new_api()
        operator = new_operator(api)
        await operator.reconcile(KEY)
        kinds = [kind for verb, kind, _ in api.writes if verb == "create"]
        assert kinds[0] == "ConfigMap", "what relies on the record comes after it"
        assert kinds.count("PersistentVolumeClaim") == 6
        operator.close()

    asyncio.run(main())


def test_an_operator_that_dies_after_the_record_continues_with_it() -> None:
    async def main() -> None:
        api = new_api()
        operator = new_operator(api)

        def dies(verb: str, kind: str, name: str) -> None:
            if (verb, kind) == ("create", "ConfigMap") and name.endswith("-record"):
                raise Crash

        api.after = dies
        with pytest.raises(Crash):
            await operator.reconcile(KEY)
        assert not [one for one in api.objects if one[0] == "PersistentVolumeClaim"]
        api.after = lambda *_: None
        await settle(api, new_operator(api))
        assert pods_of(api) == SIX

    asyncio.run(main())


def test_steps_of_a_kind_share_an_event_that_names_their_nodes() -> None:
    async def main() -> None:
        api = new_api()
        operator = new_operator(api)
        await settle(api, operator)
        reported = [one["message"] for (kind, *_), one in api.objects.items() if kind == "Event"]
        assert "CreateVolume 1, 2, 3, 101, 102, 103: the claims of disk 0 are created" in reported
        assert len(reported) < 10
        operator.close()

    asyncio.run(main())


def test_configurations_that_were_listed_are_not_read_again() -> None:
    async def main() -> None:
        api = new_api()
        operator, asked = new_operator(api), Counter[str]()
        read = api.get

        async def get(kind: str, namespace: str | None, name: str) -> object:
            asked[f"{kind} {name}"] += 1
            return await read(kind, namespace, name)

        api.get = get  # type: ignore[method-assign,assignment]
        await settle(api, operator)
        files = [what for what in asked if what.startswith("ConfigMap") and not what.endswith(("-record", "-users"))]
        assert not files
        operator.close()

    asyncio.run(main())
