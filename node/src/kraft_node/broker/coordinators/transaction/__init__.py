"""The transaction coordinator: state of transactional ids in `__transaction_state`, as in Apache Kafka 4.3.1.

The files:
- `states` has the states and stored values, `rules` what each request does in each state (pure functions);
- `records` is the stored form, `machine` one partition's transactional ids over the coordinator runtime;
- `coordinator` loads, and finds the handler of a request; `decisions` decides, writes and completes transactions;
- `markers` sends the results to the partitions' leaders;
- `writing` is one write, `completions` the Complete records that wait for the next write of their id;
- `sweeps` aborts old transactions and removes unused transactional ids;
- `api` and `admin` handle requests; `patterns` matches transactional ids; `seams` is the interface to the metadata;
- `config` has the settings.

The path of a commit: EndTxn -> PREPARE_COMMIT is stored -> the client is answered -> WriteTxnMarkers to every leader ->
COMPLETE_COMMIT is stored with the next record of the id, or after 100 ms. A new coordinator finds PREPARE_COMMIT and
continues. The coordinator epoch in the markers is the leader epoch of the id's partition, so partitions refuse markers
of an earlier coordinator.

This package must not write to partitions of other topics except through WriteTxnMarkers, answer before the commit, or
drop a marker of a partition that exists.

Limits: one write in flight per transactional id; markers wait only for transactional ids, of which each has one result.

Sources: KIP-98 (transactions), KIP-360 (epochs bumped by the producer), KIP-447, KIP-588, KIP-664 (tools), KIP-890
(transaction.version 2), KIP-939 (two-phase commit, refused as in 4.3.1), KIP-1228 (versions of markers).
"""
