"""TLS of a node: the listeners that it serves or dials, by the `ssl.*` keys, and the exchange of certificates.

Certificates are exchanged when the node's own dynamic configuration changes, as in Kafka, and when a store's file
changes, as Kubernetes does with Secrets. Both follow Kafka's rules (`kraft_protocol.tls.contexts.check_change`). A
change that breaks a rule is refused, and the present certificates stay.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from kraft_node.base.config.errors import ConfigError
from kraft_node.base.config.value_types import ConfigValue, Password, trim
from kraft_node.server.tls.handshakes import Handshakes
from kraft_node.server.tls.listener_tls import ListenerTls
from kraft_protocol.configs.own import LISTENER_PREFIX
from kraft_protocol.tls.contexts import Contexts, check_change, check_self, make_contexts
from kraft_protocol.tls.errors import TlsConfigError
from kraft_protocol.tls.settings import KEYS, SslSettings

if TYPE_CHECKING:
    from kraft_node.base.config import NodeConfig
    from kraft_node.base.config.dynamic import Remainder
    from kraft_node.base.config.view import ConfigView
    from kraft_node.base.env import Env

log = logging.getLogger("kraft_node.server.tls.node_tls")

CLIENT_AUTH: Final = "ssl.client.auth"

WATCH_MS: Final = 10_000
"""How often the files of stores are looked at. A change is used for new connections after this time at the latest."""

LANE: Final = "tls:stores"

Texts = Mapping[str, str]
Stamp = tuple[tuple[str, int, int], ...]


def text_of(value: ConfigValue) -> str:
    """A parsed value as text, as in the configuration file."""
    if isinstance(value, Password):
        return value.value
    if isinstance(value, list):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def ssl_texts(values: ConfigView, static: NodeConfig, listener: str) -> dict[str, str]:
    """The texts of the `ssl.*` keys of a listener that are given. Its own values take precedence."""
    prefix = f"{LISTENER_PREFIX}{listener.lower()}."
    found: dict[str, str] = {}
    for key in KEYS:
        for name in (prefix + key, key):
            value = next((layer[name] for layer in values.layers() if layer.get(name) is not None), None)
            text = static.texts.get(name) if value is None else text_of(value)
            if text is not None:
                found[key] = trim(text)
                break
    if static.security_protocols.get(listener, listener) == "SASL_SSL":
        own = static.texts.get(prefix + CLIENT_AUTH)
        if own is None and found.pop(CLIENT_AUTH, "none") != "none":
            log.warning(
                "key has no effect on the listener key=%s listener=%s use=%s%s",
                CLIENT_AUTH,
                listener,
                prefix,
                CLIENT_AUTH,
            )
    return found


class NodeTls:
    """The TLS of all listeners of a node."""

    def __init__(self, env: Env, config: NodeConfig) -> None:
        self._env = env
        self._config = config
        self._handshakes = Handshakes(env)
        self._values: ConfigView = config
        self._listeners: dict[str, ListenerTls] = {}
        self._texts: dict[str, Texts] = {}
        self._stamps: dict[str, Stamp] = {}
        self._reported: dict[str, str] = {}
        self._is_loading = False
        self._is_watching = False
        self.reloads = 0
        """Exchanges of certificates on this running node."""

    def listener(self, name: str) -> ListenerTls:
        """TLS of a listener, made on first use. Raises ConfigError."""
        found = self._listeners.get(name)
        if found is None:
            texts = ssl_texts(self._values, self._config, name)
            with _named(name):
                settings = SslSettings.parse(texts)
                stamp = self._stamp(settings)
                found = ListenerTls(name, self._handshakes, self._checked(name, make_contexts(settings)))
            self._listeners[name] = found
            self._texts[name], self._stamps[name] = texts, stamp
            if not self._is_watching:
                self._is_watching = True
                self._env.scheduler.call_later(WATCH_MS, self._watch)
        return found

    def _checked(self, name: str, contexts: Contexts, old: Contexts | None = None) -> Contexts:
        """Raise TlsConfigError unless the listener may use these contexts, after `old` if it has them."""
        if old is not None:
            check_change(old, contexts)
        if name == self._config.inter_broker_listener_name and contexts.keys is not None:
            if old is None:
                check_self(contexts)
            else:
                check_self(old, contexts)
                check_self(contexts, old)
        return contexts

    # Changes

    def check(self, values: ConfigView) -> Remainder | None:
        """The check that the listeners may change to `values`, for a lane, because it reads stores and shakes hands.

        It raises ConfigError. Returns None if no key of the listeners changes.
        """
        listeners = self._listeners.items()
        wanted = [(name, ssl_texts(values, self._config, name), listener.contexts) for name, listener in listeners]
        altered = [one for one in wanted if one[1] != self._texts[one[0]]]

        def work() -> None:
            for name, texts, old in altered:
                with _named(name):
                    self._checked(name, make_contexts(SslSettings.parse(texts)), old)

        return work if altered else None

    def follow(self, values: ConfigView) -> None:
        """Use the stores of the configuration in force now, if they have changed. Files are looked at, too."""
        self._values = values
        self._load(self._changed())

    def _watch(self) -> None:
        self._env.scheduler.call_later(WATCH_MS, self._watch)
        self._load(self._changed())

    def _changed(self) -> list[str]:
        """The listeners whose keys or files have changed."""
        return [
            name
            for name, listener in self._listeners.items()
            if ssl_texts(self._values, self._config, name) != self._texts[name]
            or self._stamp(listener.contexts.settings) != self._stamps[name]
        ]

    def _stamp(self, settings: SslSettings) -> Stamp:
        """What identifies the content of the files: time and size."""
        paths = [store.location for store in (settings.keystore, settings.truststore) if store.location]
        return tuple((path, *self._looked_at(path)) for path in paths)

    def _looked_at(self, path: str) -> tuple[int, int]:
        """Time and size of a file, to notice changes; -1 for both if it cannot be read."""
        try:
            return self._env.disk.mtime_ms(path), self._env.disk.size(path)
        except OSError:
            return (-1, -1)

    def _load(self, names: Iterable[str]) -> None:
        """Read the stores of these listeners in the background, and use them."""
        todo = list(names)
        if not todo or self._is_loading:
            return
        self._is_loading = True
        name = todo[0]
        texts = ssl_texts(self._values, self._config, name)
        old = self._listeners[name].contexts

        def work() -> tuple[Stamp, Contexts]:
            settings = SslSettings.parse(texts)
            stamp = self._stamp(settings)
            return stamp, self._checked(name, make_contexts(settings), old)

        def done(result: tuple[Stamp, Contexts] | BaseException) -> None:
            self._is_loading = False
            if isinstance(result, BaseException):
                self._refused(name, result)
            else:
                self._stamps[name], self._listeners[name].contexts = result
                self._texts[name] = texts
                self._reported.pop(name, None)
                self.reloads += 1
                log.info("certificates exchanged listener=%s", name)
            self._load(todo[1:])

        self._env.background.submit(LANE, work, done)

    def _refused(self, name: str, error: BaseException) -> None:
        """Report a failure once; the next look tries again."""
        if self._reported.get(name) != str(error):
            self._reported[name] = str(error)
            expected = isinstance(error, TlsConfigError)
            log.error(
                "certificates not exchanged, the present ones stay listener=%s error=%s", name, error,
                exc_info=None if expected else error,
            )  # fmt: skip

    # Figures

    def all(self) -> Iterable[ListenerTls]:
        """TLS of every listener that is served or dialled."""
        return self._listeners.values()

    @property
    def abandoned(self) -> Mapping[str, int]:
        """Handshakes of clients that this node has closed, by reason: `limit` or `timeout`."""
        return self._handshakes.abandoned

    @property
    def unfinished(self) -> int:
        """Unfinished handshakes of clients."""
        return self._handshakes.unfinished


class _named:  # noqa: N801 - a context manager, used like a function
    """Converts a TlsConfigError to a ConfigError that names the listener."""

    __slots__ = ("_listener",)

    def __init__(self, listener: str) -> None:
        self._listener = listener

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, TlsConfigError):
            raise ConfigError(f"listener {self._listener}: {error}", error.key) from None
