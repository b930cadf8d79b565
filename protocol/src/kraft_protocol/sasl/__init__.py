"""SASL without I/O: JAAS entries, the messages of SCRAM, and the client half of each mechanism.

- `jaas`: Kafka's grammar of `sasl.jaas.config`.
- `client`: what drivers know of a mechanism: `Credentials`, which start an `Exchange` for each connection; PLAIN.
- `scram`: messages and keys of SCRAM (RFC 5802, RFC 7677), for clients and servers; the client half.
- `oauthbearer`: messages of OAUTHBEARER (RFC 7628), for clients and servers; the client half; unsecured tokens.
- `token_endpoint`: a client's tokens, fetched with client credentials or an assertion (RFC 6749, RFC 7523).
- `login`: the requests of a connection that authenticates.
- `gssapi`: the client half of GSSAPI (RFC 4752) with the package `gssapi`, an extra.
- `properties`: Kafka's client properties `sasl.*` to `Credentials`; `oauth_properties`: those of OAUTHBEARER.

`kraft_node.security.sasl` has the server half. Only `token_endpoint`, `oauth_properties` and `gssapi` reach the network
or files. Drivers on an event loop call slow mechanisms (`Credentials.is_slow`) in a thread.
"""
