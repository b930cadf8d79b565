"""KRaftUsers with `controllers`: a second certificate, of the authority that controllers trust."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from kraft_operator.api.user import ROTATE
from kraft_operator.security.certificates import is_issued_by, new_authority
from kraft_pipeline.sources.security import security_of_file
from tests.unit.operator.passes.test_reconcile_users import _encoded, condition, declare, entry, passes, started
from tests.unit.operator.reconciling import KEY

KINDS = [{"type": "ScramSha512", "iterations": 4096}, {"type": "MutualTls", "validDays": 30}]
FILES = {"controllers.crt", "controllers.key", "controllers.properties"}


def names(api: Any) -> set[str]:
    return set(api.objects["Secret", "demo", "audit"]["data"])


@pytest.mark.parametrize("authentication", KINDS)
def test_a_user_of_the_controllers_has_a_certificate_of_the_nodes_authority(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, authentication: dict[str, Any]
) -> None:
    async def main() -> None:
        api, operator, _ = await started(monkeypatch)
        declare(api, "audit", authentication=authentication, controllers=True)
        await passes(operator)
        assert condition(api, "audit")["reason"] == "InForce"
        made = entry(api, "audit", "controllers.crt")
        assert is_issued_by(made, entry(api, "sample-cluster-ca", "ca.crt"))
        assert not is_issued_by(made, entry(api, "sample-clients-ca", "ca.crt"))
        subject = x509.load_pem_x509_certificate(made.encode()).subject
        assert {one.value for one in subject} == {"audit", "kraftuser.sample", "demo"}
        file = tmp_path / "controllers.properties"
        file.write_text(entry(api, "audit", "controllers.properties"))
        assert "bootstrap" not in file.read_text()
        assert security_of_file(str(file)).protocol == "SSL"
        writes = len(api.writes)
        await passes(operator)
        assert [one for one in api.writes[writes:] if one[1] == "Secret"] == []
        operator.close()

    asyncio.run(main())


def test_a_rotation_replaces_the_certificate_for_the_controllers(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        api, operator, _ = await started(monkeypatch)
        declare(api, "audit", authentication=KINDS[0], controllers=True)
        await passes(operator)
        before = entry(api, "audit", "controllers.crt")
        api.objects["KRaftUser", "demo", "audit"]["metadata"]["annotations"][ROTATE] = "now"
        operator.touched(KEY)
        await passes(operator)
        assert entry(api, "audit", "controllers.crt") != before
        operator.close()

    asyncio.run(main())


def test_files_for_the_controllers_come_and_go_with_the_field(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        api, operator, _ = await started(monkeypatch)
        declare(api, "audit", authentication=KINDS[0])
        for controllers in (None, True, False):
            api.objects["KRaftUser", "demo", "audit"]["spec"]["controllers"] = controllers
            operator.touched(KEY)
            await passes(operator)
            assert names(api) & FILES == (FILES if controllers else set())
        operator.close()

    asyncio.run(main())


def test_an_exchanged_authority_of_the_nodes_issues_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        api, operator, _ = await started(monkeypatch)
        declare(api, "audit", authentication=KINDS[0], controllers=True)
        await passes(operator)
        before = entry(api, "audit", "controllers.crt")
        other = new_authority("cluster CA", datetime.now(UTC), 1000)
        data = api.objects["Secret", "demo", "sample-cluster-ca"]["data"]
        data["ca.crt"], data["ca.key"] = _encoded(other.certificate), _encoded(other.key)
        operator.touched(KEY)
        await passes(operator)
        assert entry(api, "audit", "controllers.crt") == before
        operator.close()

    asyncio.run(main())
