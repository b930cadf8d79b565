"""Permissions of clients: the authorizer, which uses the ACLs of the metadata log (KIP-11, 140, 290, 801).

| file | question it answers |
|-|-|
| `names` | the numbers of operations, resource types, pattern types and permissions, and their names |
| `acls` | the entries of a resource: an index whose cost depends on the matching entries only |
| `acl_filter` | the entries that match a request's filter |
| `authorizer` | whether a client may do an operation: Kafka's StandardAuthorizer |
| `audit` | the line in the log `kafka.authorizer.logger` for each decision |
| `rewriting` | how a guard removes denied items from a request and adds them to the answer |
| `configs` | the guard of DescribeConfigs, for brokers and controllers |
| `entries` | the entries by resource, for the controller's requests that create and delete them |
| `tokens` | delegation tokens: their HMAC, and who may use them |
| `sasl` | the server half of SASL |

A **guard** stands in front of a handler and checks the permissions that Kafka checks for that API. It refuses the
request, or removes denied items, forwards the rest and completes the answer. So handlers do not check permissions. A
node without an authorizer has no guards and no cost. `broker.authorization` and `controller.authorization` hold the
guards of their APIs.

`server.node` creates one authorizer per node if `authorizer.class.name` is set. The authorizer follows the committed
metadata (`follow` is a publisher of the metadata loader). The broker and the controller's handlers use it. Until the
metadata known to be committed has been replayed, only super users are served, as in Kafka.

This package must not do I/O, know connections, or keep growing data other than the index of entries.

The principal is part of the request's context. Without TLS and SASL it is always `User:ANONYMOUS`. For a forwarded
request, the principal in its envelope counts; for the envelope, the broker's principal counts. A node's requests to its
own controller in the same process are checked as if they came over a connection.
"""
