"""The public keys of an issuer (JWKS, RFC 7517), from a URL or a file.

The node fetches them off the loop: at its start, each `sasl.oauthbearer.jwks.endpoint.refresh.ms`, and after a token
with an unknown key id, which is refused meanwhile. A failed fetch is retried with growing pauses; the old keys stay.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from kraft_node.base.env import Env, Timer

log = logging.getLogger(__name__)

LANE: Final = "sasl:keys"
"""The background lane of fetches; an endpoint that hangs must not delay logins."""
UNKNOWN_KID_PAUSE_MS: Final = 60_000
"""The pause between two fetches for the same unknown key id."""
UNKNOWN_KIDS_MAX: Final = 500


class Keys(Protocol):
    """Finds keys."""

    def find(self, kid: str | None) -> Any:
        """The key with the id; without an id the only key. None if there is no such key."""


class KeySet:
    """Keys by their ids."""

    def __init__(self, document: bytes) -> None:
        """Parse a JWKS document. Keys that cannot verify signatures are left out. Raises ValueError."""
        from joserfc import jwk  # noqa: PLC0415
        from joserfc.errors import JoseError  # noqa: PLC0415

        try:
            entries = json.loads(document)["keys"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ValueError("the document is not a JWKS") from None
        self._keys: list[Any] = []
        for entry in entries if isinstance(entries, list) else ():
            if not isinstance(entry, dict) or entry.get("use", "sig") != "sig" or entry.get("kty") == "oct":
                continue
            try:
                self._keys.append(jwk.import_key(entry))
            except (JoseError, ValueError, TypeError, KeyError) as error:
                log.warning("key of the JWKS cannot be used kid=%s error=%s", entry.get("kid"), type(error).__name__)

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, kid: str | None) -> Any:
        """See `Keys`."""
        found = [key for key in self._keys if kid is None or key.kid == kid]
        return found[0] if len(found) == 1 or (found and kid is not None) else None


class JwksPeriods(NamedTuple):
    """Milliseconds: between fetches, and between attempts after a failure (`sasl.oauthbearer.jwks.endpoint.*`)."""

    refresh_ms: int = 3_600_000
    retry_ms: int = 100
    retry_max_ms: int = 10_000


DEFAULT_PERIODS: Final = JwksPeriods()


class Jwks:
    """The keys at `url`, kept fresh. `fetch` reads the document, in a thread."""

    def __init__(
        self, env: Env, url: str, fetch: Callable[[str], bytes], periods: JwksPeriods = DEFAULT_PERIODS
    ) -> None:
        self._env, self.url, self._periods = env, url, periods
        self._fetch = fetch
        self._keys: KeySet | None = None
        self._is_fetching = False
        self._attempts = 0
        self._timer: Timer | None = None
        self._asked: dict[str, int] = {}
        self._is_closed = False

    def start(self) -> None:
        """Read the keys now, waiting for them, and keep them fresh afterwards. Raises ValueError, OSError."""
        self._keys = KeySet(self._fetch(self.url))
        self._later(self._periods.refresh_ms)

    def close(self) -> None:
        """Fetch no more."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    def find(self, kid: str | None) -> Any:
        """See `Keys`. An unknown id causes a fetch."""
        found = None if self._keys is None else self._keys.find(kid)
        if found is None and kid is not None:
            self._ask(kid)
        return found

    def _ask(self, kid: str) -> None:
        now_ms = self._env.clock.monotonic_ms()
        asked_ms = self._asked.get(kid)
        if asked_ms is not None and now_ms - asked_ms < UNKNOWN_KID_PAUSE_MS:
            return
        if len(self._asked) >= UNKNOWN_KIDS_MAX:
            self._asked = {k: at for k, at in self._asked.items() if now_ms - at < UNKNOWN_KID_PAUSE_MS}
            if len(self._asked) >= UNKNOWN_KIDS_MAX:
                return
        self._asked[kid] = now_ms
        self._fetch_now()

    def _later(self, delay_ms: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._env.scheduler.call_later(delay_ms, self._fetch_now)

    def _fetch_now(self) -> None:
        if self._is_fetching or self._is_closed:
            return
        self._is_fetching = True
        self._env.background.submit(LANE, lambda: KeySet(self._fetch(self.url)), self._fetched)

    def _fetched(self, result: KeySet | BaseException) -> None:
        self._is_fetching = False
        if self._is_closed:
            return
        if isinstance(result, KeySet):
            self._keys = result
            self._attempts = 0
            self._later(self._periods.refresh_ms)
            return
        log.warning("JWKS cannot be read url=%s error=%s", self.url, result)
        pause_ms = min(self._periods.retry_max_ms, self._periods.retry_ms << min(self._attempts, 20))
        self._attempts += 1
        self._later(pause_ms)
