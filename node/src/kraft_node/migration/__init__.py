"""Migration from ZooKeeper (KIP-866): ZooKeeper's content as metadata records, and committed changes back as znodes.

- `zookeeper` is the interface of a session; `runtime.zookeeper` and `testing.zookeeper` implement it.
- `tree` has the paths and contents of Kafka's znodes, `passwords` the encryption of brokers' passwords.
- `reading` makes metadata records of all znodes.
- `claim` makes a KRaft controller the controller of ZooKeeper's brokers.
- `gates` names what blocks a migration.
- `entities` takes from an image what znodes should be, `writing` makes them so.
- `states` has the states of release and draft.
- `driver` is the life of an active controller that migrates: gates, claim, one transaction, writes to both worlds.
- `links` has what the driver needs of the metadata log and of the brokers.
- `waits` has what the driver waits for.
- `lane` has the sessions of ZooKeeper, in a lane of background work.
- `steering` sends brokers that use ZooKeeper the requests that their former controller sent; `control_requests` makes
  them.
- `survey` looks at a running cluster for `kraftcluster migrate check`.

`server.migration` connects driver and steering with the node, `controller.migration` has the controller's part.
`testing.migration` runs drivers in simulated time.
"""
