"""Clients that a node must refuse.

They send requests without a login, with a wrong password, or after their session has ended; they log in again as
another user, or send a request during a second login.

The law `known`: until a client has authenticated, a node serves only the requests of a login.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kraft_node.testing.secured.users import CLIENT, MECHANISM, NODE, Users
from kraft_node.testing.workloads.session import ClusterSession
from kraft_protocol.client.errors import ClientError
from kraft_protocol.sasl.client import Credentials, PlainCredentials
from kraft_protocol.sasl.login import SaslLogin
from kraft_protocol.sasl.scram import ScramCredentials
from kraft_protocol.wire import frames
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import MetadataRequest

if TYPE_CHECKING:
    from kraft_node.base.net import Net, Transport
    from kraft_node.testing.checker import Checker
    from kraft_node.testing.machine import SimCluster

WAIT_MS: Final = 400.0
"""How long an intruder waits for an answer that must not come."""
SLACK: Final = 1.5
"""Clocks of nodes differ: a session is over after so many times its duration."""
STALL_MS: Final = 1000.0
"""A node that stands still ends sessions late."""
VERSIONS: Final = {ApiKey.SASL_HANDSHAKE: 1, ApiKey.SASL_AUTHENTICATE: 2, ApiKey.METADATA: 12}


class Wire:
    """A connection that sends anything, and keeps the frames that come (`base.net.Receiver`)."""

    def __init__(self, net: Net, host: str, port: int) -> None:
        self.frames: list[bytes] = []
        self.ended = False
        self._transport: Transport | None = None
        self._buffer = memoryview(bytearray(64 * 1024))
        self._got = bytearray()
        net.connect(host, port, self._connected, self._failed)

    def send(self, request: Any) -> None:
        """Send a request in the version of `VERSIONS`, its API key as correlation id; dropped unless connected."""
        if self._transport is not None and not self.ended:
            key = request.SCHEMA.api_key
            parts = frames.encode_request(key, key, VERSIONS[key], "intruder", request)
            self._transport.write([b"".join(map(bytes, parts))])  # type: ignore[arg-type]

    @property
    def is_open(self) -> bool:
        """Whether the connection is established, and neither side has ended it."""
        return self._transport is not None and not self.ended

    def close(self) -> None:
        """End the connection at once, if it is open; received frames stay in `frames`."""
        if self.is_open and self._transport is not None:
            self._transport.abort()
        self.ended = True

    def _connected(self, transport: Transport) -> Wire:
        self._transport = transport
        return self

    def _failed(self, error: OSError) -> None:  # noqa: ARG002
        self.ended = True

    def get_buffer(self, size_hint: int) -> memoryview:  # noqa: ARG002
        """The same 64 KiB for every read."""
        return self._buffer

    def buffer_updated(self, count: int) -> None:
        """Move complete frames into `frames`, without their lengths; the rest waits for more bytes."""
        self._got += self._buffer[:count]
        while len(self._got) >= frames.LENGTH_SIZE:
            end = frames.LENGTH_SIZE + int.from_bytes(self._got[: frames.LENGTH_SIZE], "big")
            if len(self._got) < end:
                return
            self.frames.append(bytes(self._got[frames.LENGTH_SIZE : end]))
            del self._got[:end]

    def drained(self) -> None:
        """Does nothing: an intruder never waits before it sends."""

    def connection_lost(self, error: OSError | None) -> None:  # noqa: ARG002
        """Note the end; the reason does not matter to an intruder."""
        self.ended = True


class Intruder:
    """Tries all these ways, one connection after the other."""

    def __init__(self, cluster: SimCluster, checker: Checker, users: Users, name: str) -> None:
        self.session = ClusterSession(cluster, name)
        self.users = users
        self.stopping = False
        self.tries = 0
        self._cluster, self._checker, self._rng = cluster, checker, cluster.world.rng
        self._net = cluster.network.host(self.session.host)

    async def run(self) -> None:
        """Try random ways at random brokers until stopped; each try has its own connection."""
        ways = (self._bare, self._wrong, self._unknown, self._late, self._other, self._twice)
        while not self.stopping:
            host, port = self._rng.choice(self._cluster.bootstrap)
            wire = Wire(self._net, host, port)
            await self.session.sleep(WAIT_MS / 4)
            if wire.is_open:
                self.tries += 1
                await self._rng.choice(ways)(wire, host)
            wire.close()
            await self.session.sleep(100 + self._rng.random() * 600)

    async def _bare(self, wire: Wire, host: str) -> None:
        await self._refused(wire, host, "without a login")

    async def _wrong(self, wire: Wire, host: str) -> None:
        await self._login(wire, PlainCredentials(CLIENT[0], "wrong"))
        await self._refused(wire, host, "after a wrong password")

    async def _unknown(self, wire: Wire, host: str) -> None:
        await self._login(wire, ScramCredentials(MECHANISM, "nobody", "x", self._rng.randbytes))
        await self._refused(wire, host, "as an unknown user")

    async def _late(self, wire: Wire, host: str) -> None:
        login = await self._login(wire, PlainCredentials(*CLIENT))
        if login is not None:
            await self.session.sleep(login.lifetime_ms * SLACK + STALL_MS)
            await self._refused(wire, host, "after the end of its session")

    async def _other(self, wire: Wire, host: str) -> None:
        """Log in, and again as another user."""
        if await self._login(wire, PlainCredentials(*CLIENT)) is not None:
            await self.session.sleep(100)
            if await self._login(wire, PlainCredentials(*NODE)) is not None:
                self._broken(host, "became another user on its connection")

    async def _twice(self, wire: Wire, host: str) -> None:
        """Begin to log in again, and send a request before the end."""
        if await self._login(wire, PlainCredentials(*CLIENT)) is not None:
            await self.session.sleep(100)
            login = SaslLogin(PlainCredentials(*CLIENT), host)
            wire.send(login.request())
            await self.session.sleep(WAIT_MS)
            if wire.is_open and wire.frames:
                wire.frames.clear()
                await self._refused(wire, host, "while it logs in again")

    async def _login(self, wire: Wire, credentials: Credentials) -> SaslLogin | None:
        """The login after its end; None if it failed, or if no answer came in time."""
        login = SaslLogin(credentials, "host")
        while wire.is_open and not login.is_done:
            request = login.request()
            wire.send(request)
            await self.session.sleep(WAIT_MS)
            if not wire.frames:
                return None
            key = request.SCHEMA.api_key
            try:
                login.answered(frames.decode_response(wire.frames.pop(0), key, VERSIONS[key])[1])
            except ClientError:
                return None
        return login if login.is_done else None

    async def _refused(self, wire: Wire, host: str, what: str) -> None:
        wire.send(MetadataRequest(topics=[]))
        await self.session.sleep(WAIT_MS)
        for frame in wire.frames:
            if frames.response_correlation_id(frame) == ApiKey.METADATA:
                version = VERSIONS[ApiKey.METADATA]
                answer: Any = frames.decode_response(frame, ApiKey.METADATA, version)[1]
                if answer.brokers:  # a refusal may be an answer, too
                    self._broken(host, f"answered Metadata of a client {what}")

    def _broken(self, host: str, text: str) -> None:
        self._checker.broken("known", host, text)

    # After all faults

    async def last_password(self) -> None:
        """With the last password, or one in doubt, the user gets in at every broker; with the one before, at none."""
        passwords = [*self.users.passwords, *self.users.doubtful]
        for host, port in self._cluster.bootstrap:
            while not await self._gets_in_by_any(host, port, passwords):
                await self.session.sleep(WAIT_MS)
            if self.users.old is not None and await self._gets_in(host, port, self.users.old):
                self._broken(host, "accepts a password that was replaced")

    async def _gets_in_by_any(self, host: str, port: int, passwords: list[str]) -> bool:
        for password in passwords:
            if await self._gets_in(host, port, password):
                return True
        return False

    async def _gets_in(self, host: str, port: int, password: str) -> bool:
        wire = Wire(self._net, host, port)
        await self.session.sleep(WAIT_MS / 4)
        found = await self._login(wire, self.users.scram(password))
        wire.close()
        return found is not None
