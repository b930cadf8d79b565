"""SASL to ZooKeeper: kazoo's options for a login module. kazoo speaks SASL by pure-sasl.

pure-sasl's own GSSAPI needs a package that nothing else here uses, so Kerberos goes by our client.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from puresasl import mechanisms
from puresasl.client import SASLClient

from kraft_node.base.config.zookeeper import DIGEST_MODULE
from kraft_protocol.sasl.client import Exchange, SaslError
from kraft_protocol.sasl.gssapi import GssapiCredentials
from kraft_protocol.sasl.jaas import JaasEntry

log = logging.getLogger(__name__)

SERVICE: Final = "zookeeper"
"""The first part of the servers' Kerberos principals, unless the entry has `serviceName`."""


def sasl_options(entry: JaasEntry) -> dict[str, Any]:
    """What `KazooClient` takes as `sasl_options`."""
    if entry.module == DIGEST_MODULE:
        user, password = entry.options["username"], entry.options["password"]
        return {"mechanism": "DIGEST-MD5", "username": user, "password": password}
    return {
        "mechanism": ZooKeeperGssapi.name,
        "service": entry.options.get("serviceName", SERVICE),
        "entry": entry.options,
    }


class ZooKeeperGssapi(mechanisms.Mechanism):  # type: ignore[misc]
    """GSSAPI for one connection."""

    name = "GSSAPI"
    complete = False

    def __init__(self, sasl: SASLClient, *, entry: Mapping[str, str]) -> None:
        """`entry`: options as of Java's Krb5LoginModule (`kraft_protocol.sasl.gssapi`)."""
        super().__init__(sasl)
        self._entry = entry
        self._exchange: Exchange | None = None

    def process(self, challenge: bytes | None = None) -> bytes:
        """The next message to ZooKeeper. Raises SaslError, which kazoo does not repeat, so it is logged here."""
        try:
            if self._exchange is None:
                self._exchange = GssapiCredentials(self.sasl.service, self._entry).exchange(self.sasl.host)
                return self._exchange.first()
            answer = self._exchange.step(challenge or b"")
        except SaslError as error:
            log.warning("no login to ZooKeeper error=%s", error)
            raise
        self.complete = answer is None
        return answer or b""


mechanisms.mechanisms[ZooKeeperGssapi.name] = ZooKeeperGssapi
