"""The credentials with which a node authenticates to a listener of other nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraft_node.server.sasl.keys import CONTROLLER_MECHANISM_KEY, MechanismKeys
from kraft_protocol.sasl.client import Credentials, SaslError
from kraft_protocol.sasl.properties import credentials_of
from kraft_protocol.sasl.scram import ALGORITHMS

if TYPE_CHECKING:
    from kraft_node.base.config import NodeConfig
    from kraft_node.base.env import Env


def credentials_for(env: Env, config: NodeConfig, listener: str, mechanism_key: str) -> Credentials:
    """The credentials for a listener, with the mechanism in `mechanism_key`.

    The JAAS entry of the listener's mechanism has the credentials, as for the listener itself. Raises SaslError.
    """
    mechanism = config.string(mechanism_key)
    keys = MechanismKeys(config, listener, mechanism)
    if mechanism_key == CONTROLLER_MECHANISM_KEY and config.is_controller and mechanism in ALGORITHMS:
        raise SaslError(
            f"{mechanism_key}={mechanism}: users of SCRAM are in the metadata, which controllers cannot read before "
            "they have connected; use PLAIN or mutual TLS"
        )
    entry = keys.entry()
    if entry is None:
        raise SaslError(f"{keys.jaas_key} is missing: this node authenticates with its credentials ({mechanism_key})")
    return credentials_of(mechanism, entry, keys.text, env.rng.random_bytes, lambda: env.clock.wall_ms() / 1000)
