"""The mechanisms of a listener, from the configuration of the node."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kraft_node.security.sasl.exchange import PlainUsers, ServerMechanism
from kraft_node.security.sasl.scram import KnownToken, ScramUsers
from kraft_node.security.tokens import hmac_of, secret_of
from kraft_node.server.sasl.keys import MechanismKeys
from kraft_node.server.sasl.login import ListenerSasl
from kraft_protocol.sasl.client import PLAIN, SaslError
from kraft_protocol.sasl.oauthbearer import OAUTHBEARER
from kraft_protocol.sasl.properties import GSSAPI, JAAS_KEY, MODULES
from kraft_protocol.sasl.scram import ALGORITHMS

if TYPE_CHECKING:
    from kraft_node.base.config import NodeConfig
    from kraft_node.base.env import Env
    from kraft_node.metadata.image import MetadataView
    from kraft_node.security.sasl.oauthbearer import TokenValidator

log = logging.getLogger(__name__)

ENABLED_KEY: Final = "sasl.enabled.mechanisms"
HANDLER_KEY: Final = "sasl.server.callback.handler.class"
JWKS_KEY: Final = "sasl.oauthbearer.jwks.endpoint.url"
_VALIDATORS: Final = frozenset(
    {
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
        "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
    }
)


def sasl_of(env: Env, config: NodeConfig, image: MetadataView, listener: str) -> ListenerSasl:
    """The mechanisms of a SASL listener. Raises SaslError, ValueError and OSError with the key."""
    enabled = MechanismKeys(config, listener, "").list(ENABLED_KEY)
    mechanisms: dict[str, ServerMechanism] = {}
    sessions: dict[str, int] = {}
    for name in enabled:
        keys = MechanismKeys(config, listener, name)
        maker = _MAKERS.get(name)
        if maker is None:
            raise SaslError(f"{ENABLED_KEY} of listener {listener}: {name} is not one of {', '.join(MODULES)}")
        handler = keys.text(HANDLER_KEY)
        if handler and not (name == OAUTHBEARER and handler in _VALIDATORS):
            raise SaslError(f"{HANDLER_KEY}={handler} is not supported (there is no JVM to load classes)")
        mechanisms[name] = maker(env, keys, image)
        sessions[name] = keys.int("connections.max.reauth.ms")
    if JAAS_KEY in config.texts:
        log.warning("key is ignored key=%s use=listener.name.LISTENER.MECHANISM.%s", JAAS_KEY, JAAS_KEY)
    return ListenerSasl(
        env,
        listener,
        mechanisms,
        max_session_ms=sessions,
        failure_delay_ms=config.int("connection.failed.authentication.delay.ms"),
        receive_bytes_max=config.int("sasl.server.max.receive.size"),
    )


def _plain(env: Env, keys: MechanismKeys, image: MetadataView) -> ServerMechanism:  # noqa: ARG001
    entry = keys.entry()
    if entry is None:
        raise SaslError(f"{keys.jaas_key} is missing: PLAIN needs the passwords of its users there")
    return PlainUsers.of(entry.options)


def _scram(env: Env, keys: MechanismKeys, image: MetadataView) -> ServerMechanism:
    keys.entry()  # only to refuse one that cannot be read
    secret = secret_of(keys.config)

    def find_token(token_id: str) -> KnownToken | None:
        record = image.tokens.get(token_id)
        if record is None or record.expiration_timestamp < env.clock.wall_ms():
            return None
        return (
            None if secret is None else KnownToken(record.owner, hmac_of(secret, token_id), record.expiration_timestamp)
        )

    return ScramUsers(keys.mechanism, image, find_token, env.rng.random_bytes)


def _oauth(env: Env, keys: MechanismKeys, image: MetadataView) -> ServerMechanism:  # noqa: ARG001
    from kraft_node.security.sasl.oauthbearer import OauthBearer, UnsecuredTokens  # noqa: PLC0415

    entry = keys.entry()
    url = keys.text(JWKS_KEY)
    if not url:
        if keys.text(HANDLER_KEY):
            raise SaslError(f"{JWKS_KEY} is missing: {HANDLER_KEY} validates tokens by its keys")
        if entry is None:
            raise SaslError(f"OAUTHBEARER needs {JWKS_KEY}, or for development {keys.jaas_key}")
        log.warning("OAUTHBEARER accepts unsigned tokens of any client, for development only missing=%s", JWKS_KEY)
        try:
            return OauthBearer(UnsecuredTokens(entry.options, env.clock.wall_ms))
        except ValueError as error:
            raise SaslError(f"{keys.jaas_key}: {error}") from None
    return OauthBearer(_jwt(env, keys, url))


def _jwt(env: Env, keys: MechanismKeys, url: str) -> TokenValidator:
    from kraft_node.security.sasl.jwks import Jwks, JwksPeriods  # noqa: PLC0415
    from kraft_node.security.sasl.jwt import JwtRules, JwtValidator  # noqa: PLC0415
    from kraft_protocol.sasl.token_endpoint import read_document  # noqa: PLC0415

    issuer = keys.text("sasl.oauthbearer.expected.issuer")
    audiences = tuple(keys.list("sasl.oauthbearer.expected.audience"))
    if not issuer or not audiences:
        log.warning("OAUTHBEARER does not check issuer or audience of tokens missing=sasl.oauthbearer.expected.*")
    rules = JwtRules(
        issuer or None,
        audiences,
        keys.int("sasl.oauthbearer.clock.skew.seconds"),
        str(keys.value("sasl.oauthbearer.scope.claim.name")),
        str(keys.value("sasl.oauthbearer.sub.claim.name")),
    )
    periods = JwksPeriods(
        keys.int("sasl.oauthbearer.jwks.endpoint.refresh.ms"),
        keys.int("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"),
        keys.int("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"),
    )
    jwks = Jwks(env, url, read_document, periods)
    validator = JwtValidator(rules, jwks, env.clock.wall_ms)
    try:
        jwks.start()
    except (OSError, ValueError) as error:
        raise SaslError(f"{JWKS_KEY}={url}: the keys cannot be read: {error}") from None
    return validator


def _gssapi(env: Env, keys: MechanismKeys, image: MetadataView) -> ServerMechanism:  # noqa: ARG001
    from kraft_node.security.sasl.kerberos import Kerberos, PrincipalRules  # noqa: PLC0415

    entry = keys.entry()
    if entry is None:
        raise SaslError(f"{keys.jaas_key} is missing: GSSAPI needs the node's principal and keytab there")
    key = "sasl.kerberos.principal.to.local.rules"
    try:
        rules = PrincipalRules(keys.list(key))
    except ValueError as error:
        raise SaslError(f"{key}: {error}") from None
    return Kerberos(entry.options, rules)


_MAKERS: Final[dict[str, Callable[[Env, MechanismKeys, MetadataView], ServerMechanism]]] = {
    PLAIN: _plain,
    **dict.fromkeys(ALGORITHMS, _scram),
    OAUTHBEARER: _oauth,
    GSSAPI: _gssapi,
}
