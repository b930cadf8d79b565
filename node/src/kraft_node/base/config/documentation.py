"""What each configuration key does, in one or two sentences: for DescribeConfigs with documentation.

The texts are ours. A broker key that is the default of a topic's key refers to it. A key without effect has the reason
from `effects`. Import this module where it is used: only clients that request documentation need it.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from kraft_node.base.config import effects

_TEXTS: Final = """\
add.partitions.to.txn.retry.backoff.max.ms How long the broker repeats a verification of a transaction that is busy,
  before the client gets the error.
add.partitions.to.txn.retry.backoff.ms Pause before the broker repeats a verification of a transaction that is busy.
advertised.listeners Addresses that clients and other brokers use, as NAME://host:port. Not set: the listeners.
authorizer.class.name Class that decides about requests: org.apache.kafka.metadata.authorizer.StandardAuthorizer, or
  empty for no decisions.
auto.create.topics.enable Whether a Metadata request of a client creates a topic that does not exist.
auto.leader.rebalance.enable Whether the controller moves leadership back to the preferred replicas.
broker.heartbeat.interval.ms Time between heartbeats of a broker to the active controller.
broker.id Former name of node.id.
broker.rack Failure domain of the broker. New replicas are spread over the racks, and consumers can fetch from a
  replica in their rack.
broker.session.timeout.ms A broker without a heartbeat for this time is fenced: it leads no partitions.
compression.gzip.level Level of gzip, from 1 to 9, if the broker compresses batches. -1: the default of gzip.
compression.lz4.level Level of lz4, from 1 to 17, if the broker compresses batches.
compression.type How the broker stores batches: producer keeps the producer's compression; uncompressed, gzip, snappy,
  lz4 and zstd convert.
compression.zstd.level Level of zstd, if the broker compresses batches.
config.providers Names of providers of values for variables in the configuration, such as ${env:NAME}. The keys
  config.providers.NAME.class and config.providers.NAME.param.* say what each is.
connection.failed.authentication.delay.ms A connection whose authentication has failed is closed after this time,
  which slows guessing.
connections.max.idle.ms A connection without a request for this time is closed.
connections.max.reauth.ms Clients with SASL must authenticate again within this time, or are disconnected. 0: never.
controller.listener.names Names of the listeners of controllers. Brokers use the first.
controller.quorum.append.linger.ms The leader of the metadata quorum waits for at most this time, to write more
  records at once.
controller.quorum.auto.join.enable Whether a controller of a dynamic quorum adds itself to the voters.
controller.quorum.bootstrap.servers Addresses through which a node finds a dynamic metadata quorum, as host:port.
controller.quorum.election.backoff.max.ms Upper bound of the random pause after an election without a winner.
controller.quorum.election.timeout.ms A candidate that has no majority after this time begins another election.
controller.quorum.fetch.max.bytes Maximum of metadata in one fetch of a replica of the quorum.
controller.quorum.fetch.snapshot.max.bytes Maximum of a snapshot of the metadata in one fetch.
controller.quorum.fetch.timeout.ms A voter that cannot fetch from the leader for this time becomes a candidate. A
  leader without a majority for longer resigns.
controller.quorum.request.timeout.ms How long a request to the metadata quorum may take.
controller.quorum.retry.backoff.ms Pause after a failed request to the metadata quorum.
controller.quorum.voters Voters of a static metadata quorum, as id@host:port.
controller.quota.window.num Number of windows over which the rate of controller mutations is measured.
controller.quota.window.size.seconds Length of these windows.
cordoned.log.dirs Log directories that get no new partitions; * names all.
default.replication.factor Replicas of a topic that is created without a number, automatically or by a client.
delegation.token.expiry.check.interval.ms Time between two removals of expired delegation tokens.
delegation.token.expiry.time.ms A delegation token that is not renewed is valid for this time.
delegation.token.max.lifetime.ms A delegation token cannot be renewed beyond this age.
delegation.token.secret.key Secret that signs delegation tokens; the same on all brokers and controllers. Not set: no
  tokens.
delete.topic.enable Whether clients may delete topics.
early.start.listeners Listeners that open before the metadata is loaded. Not set: those of the controllers.
fetch.max.bytes Maximum of a response to a fetch, whatever the client allows.
group.consumer.assignment.interval.ms Default of the group configuration consumer.assignment.interval.ms.
group.consumer.assignors Assignors on the broker for groups of the consumer protocol, the first by default: uniform,
  range, or own ones.
group.consumer.heartbeat.interval.ms Default of the group configuration consumer.heartbeat.interval.ms.
group.consumer.max.assignment.interval.ms Maximum of the group configuration consumer.assignment.interval.ms.
group.consumer.max.heartbeat.interval.ms Maximum of the group configuration consumer.heartbeat.interval.ms.
group.consumer.max.session.timeout.ms Maximum of the group configuration consumer.session.timeout.ms.
group.consumer.max.size Maximum of members of a group of the consumer protocol.
group.consumer.migration.policy Whether a group may change between the classic and the consumer protocol while it has
  members: bidirectional, upgrade, downgrade, disabled.
group.consumer.min.assignment.interval.ms Minimum of the group configuration consumer.assignment.interval.ms.
group.consumer.min.heartbeat.interval.ms Minimum of the group configuration consumer.heartbeat.interval.ms.
group.consumer.min.session.timeout.ms Minimum of the group configuration consumer.session.timeout.ms.
group.consumer.session.timeout.ms Default of the group configuration consumer.session.timeout.ms.
group.coordinator.append.linger.ms The group coordinator waits for at most this time, to write more records at once.
  -1: as long as writes are under way.
group.coordinator.rebalance.protocols Protocols of groups that the broker serves.
group.initial.rebalance.delay.ms The first rebalance of an empty classic group waits for this time, so that more
  members can join.
group.max.session.timeout.ms Maximum of the session time-out that a member of a classic group may request.
group.max.size Maximum of members of a classic group.
group.min.session.timeout.ms Minimum of the session time-out that a member of a classic group may request.
initial.broker.registration.timeout.ms A broker that no controller registers within this time after its start ends.
inter.broker.listener.name Listener for connections between brokers.
leader.imbalance.check.interval.seconds Time between two moves of leadership back to the preferred replicas.
listener.security.protocol.map Security protocol of each listener, as NAME:PROTOCOL.
listeners Addresses on which the node listens, as NAME://host:port. An empty host means all addresses.
log.cleaner.backoff.ms Pause of the cleaner if no log is due.
log.cleaner.dedupe.buffer.size Memory for keys in compaction, for all threads together.
log.cleaner.delete.retention.ms Default of the topic configuration delete.retention.ms.
log.cleaner.enable Whether logs are compacted.
log.cleaner.io.buffer.load.factor How full the memory for keys may be.
log.cleaner.io.max.bytes.per.second Maximum of bytes that compaction reads and writes in a second.
log.cleaner.max.compaction.lag.ms Default of the topic configuration max.compaction.lag.ms.
log.cleaner.min.cleanable.ratio Default of the topic configuration min.cleanable.dirty.ratio.
log.cleaner.min.compaction.lag.ms Default of the topic configuration min.compaction.lag.ms.
log.cleaner.threads Number of compactions at the same time.
log.cleanup.policy Default of the topic configuration cleanup.policy.
log.dir Log directory, if log.dirs is not set.
log.dirs Log directories. A new partition goes to the directory with the fewest.
log.flush.interval.messages Default of the topic configuration flush.messages.
log.flush.interval.ms Default of the topic configuration flush.ms.
log.flush.offset.checkpoint.interval.ms Time between two writes of the recovery points.
log.flush.scheduler.interval.ms Time between two looks for logs that flush.ms makes due.
log.index.interval.bytes Default of the topic configuration index.interval.bytes.
log.index.size.max.bytes Default of the topic configuration segment.index.bytes.
log.message.timestamp.after.max.ms Default of the topic configuration message.timestamp.after.max.ms.
log.message.timestamp.before.max.ms Default of the topic configuration message.timestamp.before.max.ms.
log.message.timestamp.type Default of the topic configuration message.timestamp.type.
log.retention.bytes Default of the topic configuration retention.bytes.
log.retention.check.interval.ms Time between two removals of expired segments.
log.retention.hours Default of the topic configuration retention.ms, in hours, if neither log.retention.ms nor
  log.retention.minutes is set.
log.retention.minutes Default of the topic configuration retention.ms, in minutes, if log.retention.ms is not set.
log.retention.ms Default of the topic configuration retention.ms. -1: no limit.
log.roll.hours Default of the topic configuration segment.ms, in hours, if log.roll.ms is not set.
log.roll.jitter.hours Default of the topic configuration segment.jitter.ms, in hours, if log.roll.jitter.ms is not set.
log.roll.jitter.ms Default of the topic configuration segment.jitter.ms.
log.roll.ms Default of the topic configuration segment.ms.
log.segment.bytes Default of the topic configuration segment.bytes.
log.segment.delete.delay.ms Default of the topic configuration file.delete.delay.ms.
max.connection.creation.rate Maximum of new connections in a second; further clients wait.
max.connections Maximum of connections of the broker. Beyond it, a new connection is closed.
max.connections.per.ip Maximum of connections from one address.
max.connections.per.ip.overrides Exceptions from max.connections.per.ip, as host:count.
max.incremental.fetch.session.cache.slots Maximum of fetch sessions.
max.request.partition.size.limit Maximum of partitions in an answer of DescribeTopicPartitions.
message.max.bytes Default of the topic configuration max.message.bytes.
metadata.log.dir Directory of the metadata log. Not set: the first of log.dirs.
metadata.log.max.record.bytes.between.snapshots After this many bytes of records the node writes a snapshot of the
  metadata.
metadata.log.max.snapshot.interval.ms After this time with new records the node writes a snapshot of the metadata.
metadata.log.segment.bytes Maximum size of a segment of the metadata log.
metadata.log.segment.ms Maximum age of a segment of the metadata log that grows.
metadata.max.idle.interval.ms Without other records the active controller writes one in this interval, so that lags
  can be measured. 0: never.
metadata.max.retention.bytes Size of metadata log and snapshots above which the oldest are removed.
metadata.max.retention.ms Age of segments and snapshots of the metadata log above which they are removed.
node.id Id of the node, unique in the cluster.
num.partitions Partitions of a topic that is created without a number, automatically or by a client.
num.replica.fetchers Number of connections over which a broker fetches from each leader.
offset.metadata.max.bytes Maximum of the metadata that a client may store with an offset.
offsets.commit.timeout.ms How long the write of an offset may take.
offsets.retention.check.interval.ms Time between two removals of expired offsets.
offsets.retention.minutes Offsets of an empty group, and of a topic without a subscription, are removed after this time.
offsets.topic.compression.codec Compression of the topic of offsets: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
offsets.topic.num.partitions Partitions of the topic of offsets. Do not change it once the topic exists.
offsets.topic.replication.factor Replicas of the topic of offsets.
offsets.topic.segment.bytes Size of segments of the topic of offsets; small segments are compacted and loaded sooner.
process.roles Roles of the node: broker, controller, or both.
producer.id.expiration.ms A producer without records for this time is forgotten; its next batch needs no former
  sequence number.
queued.max.request.bytes Memory of requests that are being handled, above which no more are read. -1: no limit.
quota.window.num Number of windows over which the rates of clients are measured.
quota.window.size.seconds Length of these windows.
replica.fetch.backoff.ms Pause of a follower after a failed fetch of a partition.
replica.fetch.max.bytes Bytes of one partition that a follower fetches at once; a larger first batch is fetched whole.
replica.fetch.min.bytes A fetch of a follower waits for this many bytes.
replica.fetch.response.max.bytes Bytes of all partitions that a follower fetches at once.
replica.fetch.wait.max.ms How long a fetch of a follower waits for data.
replica.high.watermark.checkpoint.interval.ms Time between two writes of the high watermarks.
replica.lag.time.max.ms A follower that has not caught up for this time leaves the in-sync replicas.
replica.selector.class Class that chooses the replica for consumers:
  org.apache.kafka.common.replica.RackAwareReplicaSelector, or none for the leader.
replica.socket.timeout.ms How long a fetch of a follower may take.
request.timeout.ms How long a request between nodes may take.
sasl.enabled.mechanisms Mechanisms of SASL on a listener: GSSAPI, PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER.
sasl.jaas.config Login of this node as a client of other nodes, as a line of JAAS.
sasl.kerberos.principal.to.local.rules Rules that make user names of Kerberos' principals.
sasl.kerberos.service.name Name of the brokers' service in Kerberos.
sasl.login.read.timeout.ms How long reading from a token endpoint may take.
sasl.login.refresh.window.factor Part of a token's lifetime after which the node fetches another.
sasl.mechanism.controller.protocol Mechanism of SASL with which the node authenticates to controllers.
sasl.mechanism.inter.broker.protocol Mechanism of SASL with which the node authenticates to brokers.
sasl.oauthbearer.assertion.algorithm Signature of the assertions that the node exchanges for tokens: RS256 or ES256.
sasl.oauthbearer.assertion.claim.aud Audience in these assertions.
sasl.oauthbearer.assertion.claim.exp.seconds Lifetime of these assertions.
sasl.oauthbearer.assertion.claim.iss Issuer in these assertions.
sasl.oauthbearer.assertion.claim.jti.include Whether these assertions have a unique id.
sasl.oauthbearer.assertion.claim.nbf.seconds How long before their creation these assertions are valid.
sasl.oauthbearer.assertion.claim.sub Subject in these assertions.
sasl.oauthbearer.assertion.file File with a finished assertion.
sasl.oauthbearer.assertion.private.key.file File with the key that signs these assertions.
sasl.oauthbearer.assertion.private.key.passphrase Password of that key.
sasl.oauthbearer.client.credentials.client.id Client id with which the node fetches tokens.
sasl.oauthbearer.client.credentials.client.secret Secret of that client id.
sasl.oauthbearer.clock.skew.seconds Difference of clocks that is tolerated in tokens.
sasl.oauthbearer.expected.audience Audiences of which a token must have one.
sasl.oauthbearer.expected.issuer Issuer that a token must have.
sasl.oauthbearer.jwks.endpoint.refresh.ms Time between two reads of the keys that sign tokens.
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms Longest pause after a failed read of these keys.
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms First pause after a failed read of these keys.
sasl.oauthbearer.jwks.endpoint.url Where the keys that sign tokens are, as https: or file: URL.
sasl.oauthbearer.scope Scope with which the node requests tokens.
sasl.oauthbearer.scope.claim.name Claim of a token that has its scopes.
sasl.oauthbearer.sub.claim.name Claim of a token that has the user's name.
sasl.oauthbearer.token.endpoint.url Where the node fetches tokens.
sasl.server.callback.handler.class Handler of a listener's mechanism; only Kafka's handlers of OAUTHBEARER are known.
sasl.server.max.receive.size Maximum of a request before authentication.
security.inter.broker.protocol Security protocol between brokers, if inter.broker.listener.name is not set.
security.providers Classes for a JVM, which this node does not have.
share.coordinator.state.topic.min.isr The configuration min.insync.replicas of the topic of share groups.
share.coordinator.state.topic.num.partitions Partitions of the topic of share groups.
share.coordinator.state.topic.replication.factor Replicas of the topic of share groups.
share.coordinator.state.topic.segment.bytes Size of segments of the topic of share groups.
socket.listen.backlog.size Connections that the operating system holds until the node accepts them.
socket.receive.buffer.bytes Size of the operating system's buffer for received data. -1: the system's default.
socket.request.max.bytes Maximum of a request.
socket.send.buffer.bytes Size of the operating system's buffer for sent data. -1: the system's default.
ssl.allow.dn.changes Whether a new certificate may have another subject.
ssl.allow.san.changes Whether a new certificate may lack names of the old one.
ssl.cipher.suites Cipher suites that are offered. Empty: those that are considered safe.
ssl.client.auth Whether clients must have a certificate: none, requested, required.
ssl.enabled.protocols Versions of TLS that are offered: TLSv1.2, TLSv1.3.
ssl.endpoint.identification.algorithm https: the name of another node's certificate is checked. Empty: it is not.
ssl.engine.factory.class A class for a JVM, which this node does not have.
ssl.key.password Password of the private key.
ssl.keymanager.algorithm An algorithm of a JVM, which this node does not have.
ssl.keystore.certificate.chain Certificates of the node, as PEM.
ssl.keystore.key Private key of the node, as PEM.
ssl.keystore.location File with key and certificates of the node.
ssl.keystore.password Password of that file.
ssl.keystore.type Format of that file: PEM, PKCS12, JKS.
ssl.principal.mapping.rules Rules that make user names of the subjects of certificates.
ssl.protocol Newest version of TLS.
ssl.provider A provider of a JVM, which this node does not have.
ssl.secure.random.implementation An implementation of a JVM, which this node does not have.
ssl.trustmanager.algorithm An algorithm of a JVM, which this node does not have.
ssl.truststore.certificates Trusted authorities, as PEM.
ssl.truststore.location File with the trusted authorities.
ssl.truststore.password Password of that file.
ssl.truststore.type Format of that file: PEM, PKCS12, JKS.
telemetry.max.bytes Maximum of the metrics that a client may push at once.
transaction.abort.timed.out.transaction.cleanup.interval.ms Time between two looks for transactions that have exceeded
  their time-out.
transaction.max.timeout.ms Maximum of the time-out that a producer may request for its transactions.
transaction.partition.verification.enable Whether the broker asks the coordinator before the first batch of a
  transaction in a partition.
transaction.remove.expired.transaction.cleanup.interval.ms Time between two removals of transactional ids that have
  not been used.
transaction.state.log.min.isr The configuration min.insync.replicas of the topic of transactions.
transaction.state.log.num.partitions Partitions of the topic of transactions. Do not change it once the topic exists.
transaction.state.log.replication.factor Replicas of the topic of transactions.
transaction.state.log.segment.bytes Size of segments of the topic of transactions.
transaction.two.phase.commit.enable Whether producers may request transactions that are never aborted for their age.
transactional.id.expiration.ms A transactional id that has not been used for this time is forgotten.
cleanup.policy What happens to old records: delete removes old segments, compact keeps the latest record of each key,
  both may be combined.
delete.retention.ms How long a compacted topic keeps tombstones and transaction markers, so that readers see them.
file.delete.delay.ms Time between the removal of a segment and the deletion of its files.
flush.messages The log is flushed to disk before this many records are acknowledged. 1: before each acknowledgement.
flush.ms The log is flushed to disk at the latest this time after a record was written.
follower.replication.throttled.replicas Replicas whose followers are throttled, as partition:broker, or * for all.
index.interval.bytes Bytes between two entries of the offset index.
leader.replication.throttled.replicas Replicas for which leaders are throttled, as partition:broker, or * for all.
max.compaction.lag.ms A record is compacted at the latest after this time.
max.message.bytes Maximum size of a batch, after compression.
message.timestamp.after.max.ms How far a record's timestamp may be ahead of the broker's clock.
message.timestamp.before.max.ms How far a record's timestamp may be behind the broker's clock.
message.timestamp.type Timestamp of records: CreateTime of the producer, or LogAppendTime of the broker.
min.cleanable.dirty.ratio A log is compacted once this part of it has not been compacted.
min.compaction.lag.ms A record is not compacted before this time.
min.insync.replicas With acks=all, a batch is refused while fewer replicas are in sync.
retention.bytes A partition above this size loses its oldest segments. -1: no limit.
retention.ms A segment whose newest record is older is removed. -1: no limit.
segment.bytes Maximum size of a segment. Retention and compaction work with whole segments.
segment.index.bytes Maximum size of a segment's index; a segment whose index is full ends.
segment.jitter.ms Segments end up to this time sooner, at random, so that not all end at the same moment.
segment.ms Maximum age of a segment that grows.
unclean.leader.election.enable Whether a replica that is not in sync may lead if no other can: records may be lost.
consumer.assignment.interval.ms Shortest time between two assignments of a group of the consumer protocol.
consumer.heartbeat.interval.ms Time between heartbeats of members of a group of the consumer protocol.
consumer.session.timeout.ms A member of the consumer protocol without a heartbeat for this time leaves its group.
interval.ms Time between two pushes of metrics by a client. No effect in this node: it asks no client for metrics.
match Clients that push metrics, as key=regular expression. No effect in this node: it asks no client for metrics.
metrics Prefixes of the names of metrics that clients push; * for all, empty for none. No effect in this node: it asks
  no client for metrics.
"""


@cache
def _texts() -> dict[str, str]:
    return dict(line.split(" ", 1) for line in _TEXTS.replace("\n  ", " ").splitlines())


def documentation(name: str) -> str:
    """The text about a key of a broker, a topic, a group or client metrics."""
    text = _texts().get(name)
    return f"No effect in this node: {effects.reason(name)}." if text is None else text
