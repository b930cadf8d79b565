"""Who a client is and what it may do: the authorizer over the ACLs of the metadata log (KIP-11, 140, 290, 801).

| file | question it answers |
|-|-|
| `names` | the numbers of operations, resource types, pattern types and permissions, and their names |
| `acls` | which entries concern a resource: an index that costs what matches |
| `acl_filter` | which entries somebody asks for |
| `authorizer` | whether somebody may do something: Kafka's StandardAuthorizer |
| `audit` | the line in the log `kafka.authorizer.logger` for what was allowed or denied |
| `rewriting` | how a guard takes out of a request what is denied, and puts it into the answer |
| `configs` | the guard that brokers and controllers share |

A **guard** stands in front of a handler and asks what Kafka asks for that API: it refuses the request, or takes out of
it what the client may not do, hands on the rest and completes the answer. So handlers know nothing of permissions, and
a node without an authorizer has no guards: it pays nothing. `broker.authorization` and `controller.authorization` hold
the guards of their APIs.

Who calls it: `server.node` makes one authorizer a node when `authorizer.class.name` is set, lets it follow the
committed metadata (`follow` is a publisher of the metadata loader), and hands it to the broker and to the controller's
handlers. Until the metadata known to be committed has been replayed only super users are served, as in Kafka.

It must not do I/O, know connections, or keep anything that grows other than the index of entries.

Principals come with the request's context. Without TLS and SASL all of them are `User:ANONYMOUS`; a request that a
broker forwards is judged by the principal in its envelope, and the envelope by the broker's. What a node asks of its
own controller within the process is judged as if it had come by a connection of its own.
"""
