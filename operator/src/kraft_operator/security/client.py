"""The operator's own connections to the nodes: by a certificate that it issues to itself, and that it never stores.

`ask_nodes` proves what nodes trust and present, for the replacement of an authority: by TLS handshakes, because a
report is no proof.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from kraft_operator.protocol import new_client
from kraft_operator.security.authorities import Proof, State
from kraft_operator.security.certificates import Authority, Leaf, issue
from kraft_operator.security.names import CLUSTER, OPERATOR, subject
from kraft_protocol.client.aio import Address, UnreachableError
from kraft_protocol.client.security import ClientSecurity
from kraft_protocol.tls.contexts import client_context
from kraft_protocol.tls.settings import SslSettings
from kraft_protocol.wire import messages as m

DAYS: Final = 2
RENEW: Final = timedelta(days=1)
PROBE_S: Final = 3.0


def context_of(leaf: Leaf, trusted: str, *, verifies_host: bool) -> ssl.SSLContext:
    """The context of a client with this certificate."""
    texts = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": leaf.key,
        "ssl.keystore.certificate.chain": leaf.chain,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": trusted,
    }
    return client_context(
        SslSettings.parse(texts if verifies_host else {**texts, "ssl.endpoint.identification.algorithm": ""})
    )


class OperatorTls:
    """TLS of the operator's client of one cluster (`ClientTls`). Until `use`, no connection succeeds."""

    def __init__(self, cluster: str, namespace: str) -> None:
        self._subject = subject(OPERATOR, cluster, namespace)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._made_for: tuple[str, str] | None = None
        self._renew_at: datetime | None = None

    @property
    def client_context(self) -> ssl.SSLContext:
        """The context of new connections."""
        return self._context

    def use(self, authority: State, now: datetime) -> None:
        """Take a certificate of this authority, unless the present one is of it and lasts."""
        made_for = (authority.current.certificate, authority.anchors)
        if made_for != self._made_for or self._renew_at is None or now >= self._renew_at:
            leaf = issue(authority.current, self._subject, now, DAYS)
            self._context = context_of(leaf, authority.anchors, verifies_host=True)
            self._made_for, self._renew_at = made_for, now + RENEW


class _Fixed:
    """TLS with one context (`ClientTls`)."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.client_context = context


Ask = Callable[[Address], Awaitable[bool]]


async def ask_nodes(
    name: str,
    state: State,
    trusting: Mapping[int, Sequence[Address]],
    presenting: Mapping[int, Sequence[Address]],
    role: Mapping[str, str],
    now: datetime,
) -> Proof:
    """Ask the nodes about the phase that an authority is in.

    `trusting` are the addresses by node that authenticate clients by this authority, `presenting` those with TLS.
    """
    if state.next is not None:
        candidate = state.next

        async def trusts(address: Address) -> bool:
            return await _accepts(address, candidate, state.anchors, role, now, verifies=name == CLUSTER)

        lacking = await _lacking(trusting, trusts)
        return Proof(trusts_next=f"node {lacking} does not trust it yet" if lacking is not None else "")

    async def presents(address: Address) -> bool:
        return await _presents(address, state.current.certificate)

    lacking = await _lacking(presenting, presents)
    return Proof(presents_current=f"node {lacking} still presents its certificate" if lacking is not None else "")


async def _lacking(nodes: Mapping[int, Sequence[Address]], ask: Ask) -> int | None:
    """The first node with an address that does not pass; None if all pass."""
    pairs = [(node, address) for node, addresses in sorted(nodes.items()) for address in addresses]
    answers = await asyncio.gather(*(ask(address) for _, address in pairs))
    return next((node for (node, _), passes in zip(pairs, answers, strict=True) if not passes), None)


async def _accepts(
    address: Address, authority: Authority, trusted: str, role: Mapping[str, str], now: datetime, *, verifies: bool
) -> bool:
    """Whether a listener answers a client with a certificate of this authority."""
    context = context_of(issue(authority, role, now, DAYS), trusted, verifies_host=False)
    if not verifies:  # the clients' authority says nothing about servers, and only a public request is sent
        context.verify_mode = ssl.CERT_NONE
    client = new_client(PROBE_S, ClientSecurity("SSL", tls=_Fixed(context)))
    try:
        await client.request(address, m.ApiVersionsRequest("kraft-operator", "1"))
    except UnreachableError:
        return False
    finally:
        client.close()
    return True


async def _presents(address: Address, certificate: str) -> bool:
    """Whether a listener presents a certificate of this authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=certificate)
    try:
        async with asyncio.timeout(PROBE_S):
            _, writer = await asyncio.open_connection(*address, ssl=context)
    except (OSError, EOFError, TimeoutError):
        return False
    writer.transport.abort()
    return True
