"""The configuration of SASL: a listener's mechanism first, then the listener, then the node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kraft_node.base.config.value_types import trim
from kraft_node.base.config.view import broker_key
from kraft_protocol.configs.own import LISTENER_PREFIX
from kraft_protocol.sasl.jaas import JaasEntry
from kraft_protocol.sasl.properties import JAAS_KEY, jaas_of

if TYPE_CHECKING:
    from kraft_node.base.config import NodeConfig
    from kraft_node.base.config.value_types import ConfigValue

CONTROLLER_MECHANISM_KEY: Final = "sasl.mechanism.controller.protocol"
INTER_BROKER_MECHANISM_KEY: Final = "sasl.mechanism.inter.broker.protocol"


class MechanismKeys:
    """The values of one mechanism of one listener."""

    def __init__(self, config: NodeConfig, listener: str, mechanism: str) -> None:
        self.config = config
        self._listener = f"{LISTENER_PREFIX}{listener.lower()}."
        self._mechanism = f"{self._listener}{mechanism.lower()}."
        self.mechanism = mechanism
        self.jaas_key = f"{self._mechanism}{JAAS_KEY}"
        """The key of the JAAS entry, the only place where nodes look for it."""

    def text(self, name: str) -> str | None:
        """The text of a key, None if it is not given."""
        texts = self.config.texts
        for prefix in (self._mechanism, self._listener, ""):
            given = texts.get(prefix + name)
            if given is not None:
                return trim(given)
        return None

    def value(self, name: str) -> ConfigValue:
        """The parsed value of a key, its default if it is not given. Raises ConfigError."""
        key = broker_key(name)
        text = self.text(name)
        return key.default if text is None else key.parse(text)

    def int(self, name: str) -> int:
        """An integer."""
        value = self.value(name)
        assert isinstance(value, int), name
        return value

    def list(self, name: str) -> list[str]:
        """A list."""
        value = self.value(name)
        assert isinstance(value, list), name
        return value

    def entry(self) -> JaasEntry | None:
        """The JAAS entry; None if it is not given. Raises SaslError."""
        text = self.config.texts.get(self.jaas_key)
        return None if text is None else jaas_of(self.mechanism, self.jaas_key, text)
