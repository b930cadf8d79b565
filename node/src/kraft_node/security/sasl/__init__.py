"""The server half of SASL, without I/O; `kraft_protocol.sasl` has the client half.

| file | question it answers |
|-|-|
| `exchange` | what all mechanisms have in common: exchanges, identities, refusals; PLAIN |
| `scram` | SCRAM with the users and the delegation tokens of the metadata log |
| `oauthbearer` | OAUTHBEARER; unsecured tokens |
| `jwt` | whether a signed token is valid |
| `jwks` | the keys of an issuer, fetched off the loop |
| `kerberos` | GSSAPI, and the short names of Kerberos principals |

`kraft_node.server.sasl` applies them to connections.
"""
