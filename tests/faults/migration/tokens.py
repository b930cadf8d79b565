"""A client that creates, renews and expires delegation tokens through a whole migration, and logs in with them."""

from __future__ import annotations

import base64
import random
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kraft_node.cli.client import NodeClient
from kraft_node.cli.common import ToolError
from kraft_protocol.client.properties import client_security
from kraft_protocol.client.security import ClientSecurity
from kraft_protocol.wire import messages as m
from kraft_protocol.wire.api import ApiKey
from tests.compat.members import wait_for
from tests.faults.migration.workload import FaultClient
from tests.golden.migration.content import PASSWORD

OWNER: Final = "alice"
LIVE_MAX: Final = 8
PAUSE_S: Final = 0.5
ANSWER_S: Final = 15.0
KNOWN_S: Final = 120.0
"""In which time all brokers know all tokens, once nothing disturbs them."""


class LiveToken(NamedTuple):
    """A token whose creation was acknowledged."""

    hmac: bytes
    expiry_ms: int
    """Acknowledged last."""


class Bearer(FaultClient):
    """`count` grows with each acknowledged change of a token."""

    def __init__(self, bootstrap: str, sasl_ports: Mapping[int, int], seed: int) -> None:
        """`sasl_ports`: of all brokers."""
        super().__init__(bootstrap)
        self.live: dict[str, LiveToken] = {}
        self.expired: set[str] = set()
        """Expired for certain. A token whose end has no answer is in neither set."""
        self.logins = 0
        self._sasl_ports = sasl_ports
        self._rng = random.Random(f"tokens {seed}")

    def _once(self) -> None:
        self._ended.wait(PAUSE_S)
        try:
            self._change()
            self.count += 1
            self._log_in()
        except ToolError as e:
            self.problems.append(str(e))

    def _change(self) -> None:
        if len(self.live) >= LIVE_MAX:
            name, token = self.live.popitem() if self._rng.random() < 0.5 else self._oldest()
            request: Any = m.ExpireDelegationTokenRequest(token.hmac, -1)
            self._ask_controller(ApiKey.EXPIRE_DELEGATION_TOKEN, request)
            self.expired.add(name)
        elif self.live and self._rng.random() < 0.3:
            name = self._rng.choice([*self.live])
            request = m.RenewDelegationTokenRequest(self.live[name].hmac, -1)
            answer = self._ask_controller(ApiKey.RENEW_DELEGATION_TOKEN, request)
            self.live[name] = self.live[name]._replace(expiry_ms=answer.expiry_timestamp_ms)
        else:
            of = m.CreateDelegationTokenRequest
            request = of(renewers=[of.CreatableRenewers("User", "bob")], max_lifetime_ms=-1)
            answer = self._ask_controller(ApiKey.CREATE_DELEGATION_TOKEN, request)
            self.live[answer.token_id] = LiveToken(answer.hmac, answer.expiry_timestamp_ms)

    def _oldest(self) -> tuple[str, LiveToken]:
        name = next(iter(self.live))
        return name, self.live.pop(name)

    def _ask_controller(self, key: ApiKey, request: Any) -> Any:
        """The answer. Brokers with ZooKeeper do not forward these requests while one of them is the controller."""
        asked = self._rng.choice(self.bootstrap.split(","))
        host, _, port = asked.rpartition(":")
        with NodeClient(host, int(port), ANSWER_S) as client:
            found = client.request(ApiKey.METADATA, m.MetadataRequest([])).controller_id
        if found not in self._sasl_ports:
            raise ToolError(f"{asked} knows no controller")
        with self._client(found, _security(OWNER, PASSWORD.decode())) as client:
            answer = client.request(key, request)
        if answer.error_code:
            raise ToolError(f"{key.name}: error {answer.error_code}")
        return answer

    def _client(self, broker: int, security: ClientSecurity) -> NodeClient:
        return NodeClient("127.0.0.1", self._sasl_ports[broker], ANSWER_S, security)

    def _log_in(self) -> None:
        """At any broker, with any token. A broker may not know a new token yet."""
        if self.live:
            name = self._rng.choice([*self.live])
            self._logs_in(self._rng.choice([*self._sasl_ports]), name, self.live[name])
            self.logins += 1

    def _logs_in(self, broker: int, name: str, token: LiveToken) -> None:
        password = base64.b64encode(token.hmac).decode()
        with self._client(broker, _security(name, password, tokenauth="true")) as client:
            client.request(ApiKey.METADATA, m.MetadataRequest([]))

    def _close(self) -> None:
        pass

    # The end

    def judge(self) -> None:
        """Raise AssertionError unless each broker knows exactly the live tokens, and each of them logs in."""
        assert self.logins, f"no token has logged in: {self.problems[:5]}"
        for broker in self._sasl_ports:
            wrong: list[str] = []

            def is_right(broker: int = broker, wrong: list[str] = wrong) -> bool:
                wrong[:] = self._wrong(broker)
                return not wrong

            try:
                wait_for("the tokens", is_right, timeout_s=KNOWN_S)
            except AssertionError:
                raise AssertionError(f"tokens of broker {broker}: {'; '.join(wrong)}") from None

    def _wrong(self, broker: int) -> list[str]:
        try:
            with self._client(broker, _security(OWNER, PASSWORD.decode())) as client:
                request = m.DescribeDelegationTokenRequest(None)
                answer = client.request(ApiKey.DESCRIBE_DELEGATION_TOKEN, request)
            found = {one.token_id: LiveToken(one.hmac, one.expiry_timestamp) for one in answer.tokens}
            wrong = [f"{name} is lost" for name in self.live.keys() - found.keys()]
            wrong += [f"{name} lives, but was expired" for name in self.expired & found.keys()]
            for name in self.live.keys() & found.keys():
                token = self.live[name]
                if found[name].hmac != token.hmac or found[name].expiry_ms < token.expiry_ms:
                    wrong.append(f"{name} is {found[name]}, not {token}")
                self._logs_in(broker, name, token)
        except ToolError as e:
            return [str(e)]
        return wrong


def _security(user: str, password: str, **options: str) -> ClientSecurity:
    more = "".join(f' {key}="{value}"' for key, value in options.items())
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return client_security(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.jaas.config": f'{module} required username="{user}" password="{password}"{more};',
        }
    )
