"""The client's side of SASL on one connection: SaslHandshake, then SaslAuthenticate until both sides are satisfied."""

from __future__ import annotations

from typing import Any

from kraft_protocol.client.errors import AuthenticationError, code_text
from kraft_protocol.errors import ErrorCode
from kraft_protocol.sasl.client import Credentials, Exchange, SaslError
from kraft_protocol.wire.messages import SaslAuthenticateRequest, SaslHandshakeRequest


class SaslLogin:
    """Authenticates one connection to `host` (see `kraft_protocol.client.session.Login`)."""

    __slots__ = ("_credentials", "_exchange", "_host", "_message", "is_done", "lifetime_ms")

    def __init__(self, credentials: Credentials, host: str) -> None:
        self._credentials, self._host = credentials, host
        self._exchange: Exchange | None = None
        self._message = b""
        self.is_done = False
        self.lifetime_ms = 0
        """When the client must authenticate again, at the latest; 0: never."""

    @property
    def is_slow(self) -> bool:
        """Whether `answered` may take long, so that an event loop must call it in a thread."""
        return self._credentials.is_slow

    def request(self) -> Any:
        """The next request."""
        if self._exchange is None:
            return SaslHandshakeRequest(self._credentials.mechanism)
        return SaslAuthenticateRequest(self._message)

    def answered(self, response: Any) -> None:
        """Process the response to the last request. Raises AuthenticationError, OSError."""
        mechanism, exchange = self._credentials.mechanism, self._exchange
        try:
            if exchange is None:
                if response.error_code:
                    enabled = f"; enabled: {', '.join(response.mechanisms)}" if response.mechanisms else ""
                    raise AuthenticationError(f"refuses {mechanism}: {code_text(response.error_code)}{enabled}")
                self._exchange = exchange = self._credentials.exchange(self._host)
                self._message = exchange.first()
                return
            if response.error_code:
                text = response.error_message or code_text(response.error_code)
                known = response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
                raise AuthenticationError(text if known else f"{code_text(response.error_code)}: {text}")
            message = exchange.step(bytes(response.auth_bytes))
        except SaslError as error:
            raise AuthenticationError(str(error)) from None
        if message is None:
            self.is_done = True
            self.lifetime_ms = response.session_lifetime_ms
        else:
            self._message = message
