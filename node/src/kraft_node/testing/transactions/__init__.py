"""Transactions in a simulated cluster: producers, applications that copy, readers, and the laws for them.

- `scenario`   a cluster with these clients, under all faults of `cluster_faults`
- `clients`    all clients of a run and their topics, and the judgement at the end
- `ledger`     what the clients have sent, read and received as answers: the input of the laws
- `producer`   a transactional producer, with the protocol of each transaction.version
- `writer`     owns a transactional id: runs producers, pauses them, lets successors take over
- `copier`     reads committed records, and copies them in transactions with their offsets
- `reading`    fetches with either isolation level; readers
- `eraser`, `versions`  an administrator that deletes records; an operator that changes the transaction.version
- `judge`      the laws, on the ledger and the final logs
- `node_laws`  the laws inside the nodes, once the cluster is at rest
"""
