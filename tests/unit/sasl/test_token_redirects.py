"""Tokens of a cluster's clients: the client's secret goes to the token endpoint alone."""

from __future__ import annotations

import pytest

from kraft_protocol.sasl.client import SaslError
from kraft_protocol.sasl.token_endpoint import fetch
from tests.registry import RegistryServer


def test_a_redirect_does_not_take_the_secret_to_another_origin() -> None:
    """The standard library repeats the Authorization header wherever a redirect leads."""
    with RegistryServer().serving() as front, RegistryServer().serving() as other:
        front.redirects = [other.url]
        with pytest.raises(SaslError, match="answers 404"):
            fetch(f"{front.url}/token", {"grant_type": "client_credentials"}, basic=("id", "secret"))
        assert ["Authorization" in headers for headers in other.headers] == [False]
