"""The configuration keys of Apache Kafka 4.3.1, as facts. Written by `tools/import_configs`: do not edit.

One key a line: name, type, default, constraint, flags. The node's `base.config.definitions` reads it.

- default: `!` no default (the key must be given), `~` null, otherwise `=` and the text.
- constraint: `-` no constraint; `range:A..B` (either may be missing); `in:A,B`; `ci:A,B` (in any case).
  `list:A,B`: a list of these values (of any values if no value is named), without duplicates or empty entries.
  After `list`, `e` means that the list may be empty, `n` that it may be null.
  Another text is the name of a rule in the node's `base.config.validators`.
- flags: `h` `m` `l` the importance. `p`: may change at run time per broker; `c`: for one broker or the whole cluster.
  `i`: internal, not shown by DescribeConfigs.
"""

# ruff: noqa: E501

from __future__ import annotations

from typing import Final

KAFKA_VERSION: Final = "4.3.1"

BROKER: Final = """\
add.partitions.to.txn.retry.backoff.max.ms int =100 range:0.. h
add.partitions.to.txn.retry.backoff.ms int =20 range:1.. h
advertised.listeners list ~ listn: h
alter.config.policy.class.name class ~ - l
alter.log.dirs.replication.quota.window.num int =11 range:1.. l
alter.log.dirs.replication.quota.window.size.seconds int =1 range:1.. l
authorizer.class.name string = non-null l
auto.create.topics.enable boolean =true - h
auto.leader.rebalance.enable boolean =true - h
background.threads int =10 range:1.. hc
broker.heartbeat.interval.ms int =2000 - m
broker.id int =-1 - h
broker.rack string ~ - m
broker.session.timeout.ms int =9000 - m
client.quota.callback.class class ~ - l
compression.gzip.level int =-1 gzip-level mc
compression.lz4.level int =9 range:1..17 mc
compression.type string =producer in:uncompressed,zstd,lz4,snappy,gzip,producer hc
compression.zstd.level int =3 range:-131072..22 mc
config.providers list = liste: lc
connection.failed.authentication.delay.ms int =100 range:0.. l
connections.max.idle.ms long =600000 - m
connections.max.reauth.ms long =0 - m
controlled.shutdown.enable boolean =true - m
controller.listener.names list ! list: h
controller.performance.always.log.threshold.ms long =2000 range:0.. mi
controller.performance.sample.period.ms long =60000 range:100.. mi
controller.quorum.append.linger.ms int =25 range:0.. m
controller.quorum.auto.join.enable boolean =false - l
controller.quorum.bootstrap.servers list = bootstrap-servers h
controller.quorum.election.backoff.max.ms int =1000 range:0.. h
controller.quorum.election.timeout.ms int =1000 range:0.. h
controller.quorum.fetch.max.bytes int =1048576 range:1.. l
controller.quorum.fetch.snapshot.max.bytes int =1048576 range:1.. l
controller.quorum.fetch.timeout.ms int =2000 range:0.. h
controller.quorum.request.timeout.ms int =2000 range:0.. m
controller.quorum.retry.backoff.ms int =20 range:0.. l
controller.quorum.voters list = voters h
controller.quota.window.num int =11 range:1.. l
controller.quota.window.size.seconds int =1 range:1.. l
controller.socket.timeout.ms int =30000 - m
cordoned.log.dirs list = listen: mp
create.topic.policy.class.name class ~ - l
default.replication.factor int =1 - m
delegation.token.expiry.check.interval.ms long =3600000 range:1.. l
delegation.token.expiry.time.ms long =86400000 range:1.. m
delegation.token.max.lifetime.ms long =604800000 range:1.. m
delegation.token.secret.key password ~ - m
delete.records.purgatory.purge.interval.requests int =1 - m
delete.topic.enable boolean =true - h
early.start.listeners list ~ listen: h
fetch.max.bytes int =57671680 range:1024.. m
fetch.purgatory.purge.interval.requests int =1000 - m
follower.fetch.last.tiered.offset.enable boolean =false - mc
group.consumer.assignment.interval.ms int =1000 range:0.. mc
group.consumer.assignors list =uniform,range list: m
group.consumer.heartbeat.interval.ms int =5000 range:1.. m
group.consumer.max.assignment.interval.ms int =15000 range:0.. m
group.consumer.max.heartbeat.interval.ms int =15000 range:1.. m
group.consumer.max.session.timeout.ms int =60000 range:1.. m
group.consumer.max.size int =2147483647 range:1.. m
group.consumer.migration.policy string =bidirectional ci:BIDIRECTIONAL,DISABLED,DOWNGRADE,UPGRADE m
group.consumer.min.assignment.interval.ms int =0 range:0.. m
group.consumer.min.heartbeat.interval.ms int =5000 range:1.. m
group.consumer.min.session.timeout.ms int =45000 range:1.. m
group.consumer.regex.refresh.interval.ms int =600000 range:10000.. mi
group.consumer.session.timeout.ms int =45000 range:1.. m
group.coordinator.append.linger.ms int =-1 range:-1.. m
group.coordinator.background.threads int =2 range:1.. h
group.coordinator.cached.buffer.max.bytes int =1048588 range:524288.. mc
group.coordinator.rebalance.protocols list =classic,consumer,streams list:consumer,classic,share,streams m
group.coordinator.threads int =4 range:1.. h
group.initial.rebalance.delay.ms int =3000 - m
group.max.session.timeout.ms int =1800000 - m
group.max.size int =2147483647 range:1.. m
group.min.session.timeout.ms int =6000 - m
group.share.assignment.interval.ms int =1000 range:0.. mc
group.share.assignors list =simple list: m
group.share.delivery.count.limit int =5 range:2..10 m
group.share.heartbeat.interval.ms int =5000 range:1.. m
group.share.initialize.retry.interval.ms int =30000 range:1.. li
group.share.max.assignment.interval.ms int =15000 range:0.. m
group.share.max.delivery.count.limit int =10 range:5..25 m
group.share.max.heartbeat.interval.ms int =15000 range:1.. m
group.share.max.partition.max.record.locks int =4000 range:2000..10000 m
group.share.max.record.lock.duration.ms int =60000 range:30000..3600000 m
group.share.max.session.timeout.ms int =60000 range:1.. m
group.share.max.share.sessions int =2000 range:1.. m
group.share.max.size int =200 range:1..1000 m
group.share.min.assignment.interval.ms int =0 range:0.. m
group.share.min.delivery.count.limit int =2 range:2..5 m
group.share.min.heartbeat.interval.ms int =5000 range:1.. m
group.share.min.partition.max.record.locks int =100 range:100..2000 m
group.share.min.record.lock.duration.ms int =15000 range:1000..30000 m
group.share.min.session.timeout.ms int =45000 range:1.. m
group.share.partition.max.record.locks int =2000 range:100..10000 m
group.share.persister.class.name string =org.apache.kafka.server.share.persister.DefaultStatePersister - mi
group.share.record.lock.duration.ms int =30000 range:1000..3600000 m
group.share.session.timeout.ms int =45000 range:1.. m
group.streams.assignment.interval.ms int =1000 range:0.. mc
group.streams.heartbeat.interval.ms int =5000 range:1.. m
group.streams.initial.rebalance.delay.ms int =3000 range:0.. m
group.streams.max.assignment.interval.ms int =15000 range:0.. m
group.streams.max.heartbeat.interval.ms int =15000 range:1.. m
group.streams.max.session.timeout.ms int =60000 range:1.. m
group.streams.max.size int =2147483647 range:1.. m
group.streams.max.standby.replicas int =2 range:0.. m
group.streams.min.assignment.interval.ms int =0 range:0.. m
group.streams.min.heartbeat.interval.ms int =5000 range:1.. m
group.streams.min.session.timeout.ms int =45000 range:1.. m
group.streams.num.standby.replicas int =0 range:0.. m
group.streams.session.timeout.ms int =45000 range:1.. m
initial.broker.registration.timeout.ms int =60000 - m
inter.broker.listener.name string ~ - m
internal.metadata.delete.delay.millis long =60000 - li
internal.metadata.log.segment.bytes int ~ - li
internal.metadata.max.batch.size.in.bytes int =8388608 - li
kafka.metrics.polling.interval.secs int =10 range:1.. l
kafka.metrics.reporters list = liste: l
leader.imbalance.check.interval.seconds long =300 range:1.. h
listener.security.protocol.map string =SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT - lp
listeners list =PLAINTEXT://:9092 list: hp
log.cleaner.backoff.ms long =15000 range:0.. mc
log.cleaner.dedupe.buffer.size long =134217728 - mc
log.cleaner.delete.retention.ms long =86400000 range:0.. mc
log.cleaner.enable boolean =true - m
log.cleaner.io.buffer.load.factor double =0.9 - mc
log.cleaner.io.buffer.size int =524288 range:0.. mc
log.cleaner.io.max.bytes.per.second double =1.7976931348623157E308 - mc
log.cleaner.max.compaction.lag.ms long =9223372036854775807 range:1.. mc
log.cleaner.min.cleanable.ratio double =0.5 range:0..1 mc
log.cleaner.min.compaction.lag.ms long =0 range:0.. mc
log.cleaner.threads int =1 range:0.. mc
log.cleanup.policy list =delete liste:compact,delete mc
log.dir list =/tmp/kafka-logs list: h
log.dir.failure.timeout.ms long =30000 range:1.. l
log.dirs list ~ listn: h
log.flush.interval.messages long =9223372036854775807 range:1.. hc
log.flush.interval.ms long ~ - hc
log.flush.offset.checkpoint.interval.ms int =60000 range:0.. h
log.flush.scheduler.interval.ms long =9223372036854775807 - h
log.flush.start.offset.checkpoint.interval.ms int =60000 range:0.. h
log.index.interval.bytes int =4096 range:0.. mc
log.index.size.max.bytes int =10485760 range:4.. mc
log.initial.task.delay.ms long =30000 range:0.. li
log.local.retention.bytes long =-2 range:-2.. mc
log.local.retention.ms long =-2 range:-2.. mc
log.message.timestamp.after.max.ms long =3600000 range:0.. mc
log.message.timestamp.before.max.ms long =9223372036854775807 range:0.. mc
log.message.timestamp.type string =CreateTime in:CreateTime,LogAppendTime mc
log.preallocate boolean =false - mc
log.retention.bytes long =-1 - hc
log.retention.check.interval.ms long =300000 range:1.. m
log.retention.hours int =168 - h
log.retention.minutes int ~ - h
log.retention.ms long ~ - hc
log.roll.hours int =168 range:1.. h
log.roll.jitter.hours int =0 range:0.. h
log.roll.jitter.ms long ~ - hc
log.roll.ms long ~ - hc
log.segment.bytes int =1073741824 range:1048576.. hc
log.segment.delete.delay.ms long =60000 range:0.. hc
max.connection.creation.rate int =2147483647 range:0.. mc
max.connections int =2147483647 range:0.. mc
max.connections.per.ip int =2147483647 range:0.. mc
max.connections.per.ip.overrides string = - mc
max.incremental.fetch.session.cache.slots int =1000 range:0.. m
max.request.partition.size.limit int =2000 range:1.. m
message.max.bytes int =1048588 range:0.. hc
metadata.log.dir string ~ - h
metadata.log.max.record.bytes.between.snapshots long =20971520 range:1.. h
metadata.log.max.snapshot.interval.ms long =3600000 range:0.. h
metadata.log.segment.bytes int =1073741824 range:8388608.. h
metadata.log.segment.ms long =604800000 - h
metadata.max.idle.interval.ms int =500 range:0.. l
metadata.max.retention.bytes long =104857600 - h
metadata.max.retention.ms long =604800000 - h
metric.reporters list =org.apache.kafka.common.metrics.JmxReporter liste: lc
metrics.num.samples int =2 range:1.. l
metrics.recording.level string =INFO - l
metrics.sample.window.ms long =30000 range:1.. l
min.insync.replicas int =1 range:1.. hc
node.id int ! range:0.. h
num.io.threads int =8 range:1.. hc
num.network.threads int =3 range:1.. hc
num.partitions int =1 range:1.. m
num.recovery.threads.per.data.dir int =2 range:1.. hc
num.replica.alter.log.dirs.threads int ~ - h
num.replica.fetchers int =1 range:1.. hc
offset.metadata.max.bytes int =4096 - h
offsets.commit.timeout.ms int =5000 range:1.. h
offsets.load.buffer.size int =5242880 range:1.. h
offsets.retention.check.interval.ms long =600000 range:1.. h
offsets.retention.minutes int =10080 range:1.. h
offsets.topic.compression.codec int =0 - h
offsets.topic.num.partitions int =50 range:1.. h
offsets.topic.replication.factor short =3 range:1.. h
offsets.topic.segment.bytes int =104857600 range:1.. h
principal.builder.class class =org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder - mp
process.roles list ! list:broker,controller h
producer.id.expiration.check.interval.ms int =600000 range:1.. li
producer.id.expiration.ms int =86400000 range:1.. lc
producer.purgatory.purge.interval.requests int =1000 - m
queued.max.request.bytes long =-1 - m
queued.max.requests int =500 range:1.. h
quota.window.num int =11 range:1.. l
quota.window.size.seconds int =1 range:1.. l
remote.fetch.max.wait.ms int =500 range:1.. mc
remote.list.offsets.request.timeout.ms long =30000 range:1.. mc
remote.log.index.file.cache.total.size.bytes long =1073741824 range:1.. lc
remote.log.index.file.cache.ttl.ms long =900000 range:-1.. li
remote.log.manager.copier.thread.pool.size int =10 range:1.. mc
remote.log.manager.copy.max.bytes.per.second long =9223372036854775807 range:1.. mc
remote.log.manager.copy.quota.window.num int =11 range:1.. m
remote.log.manager.copy.quota.window.size.seconds int =1 range:1.. m
remote.log.manager.expiration.thread.pool.size int =10 range:1.. mc
remote.log.manager.fetch.max.bytes.per.second long =9223372036854775807 range:1.. mc
remote.log.manager.fetch.quota.window.num int =11 range:1.. m
remote.log.manager.fetch.quota.window.size.seconds int =1 range:1.. m
remote.log.manager.follower.thread.pool.size int =2 range:1.. mc
remote.log.manager.task.interval.ms long =30000 range:1.. l
remote.log.manager.task.retry.backoff.max.ms long =30000 range:1.. li
remote.log.manager.task.retry.backoff.ms long =500 range:1.. li
remote.log.manager.task.retry.jitter double =0.2 range:0..0.5 li
remote.log.manager.thread.pool.size int =2 range:1.. m
remote.log.metadata.custom.metadata.max.bytes int =128 range:0.. l
remote.log.metadata.manager.class.name string =org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager non-empty m
remote.log.metadata.manager.class.path string ~ - m
remote.log.metadata.manager.impl.prefix string =rlmm.config. non-empty m
remote.log.metadata.manager.listener.name string ~ non-empty m
remote.log.reader.max.pending.tasks int =100 range:1.. m
remote.log.reader.threads int =10 range:1.. mc
remote.log.storage.manager.class.name string ~ non-empty m
remote.log.storage.manager.class.path string ~ - m
remote.log.storage.manager.impl.prefix string =rsm.config. non-empty m
remote.log.storage.system.enable boolean =false - m
replica.fetch.backoff.ms int =1000 range:0.. m
replica.fetch.max.bytes int =1048576 range:0.. m
replica.fetch.min.bytes int =1 - h
replica.fetch.response.max.bytes int =10485760 range:0.. m
replica.fetch.wait.max.ms int =500 - h
replica.high.watermark.checkpoint.interval.ms long =5000 - h
replica.lag.time.max.ms long =30000 - h
replica.selector.class string ~ - m
replica.socket.receive.buffer.bytes int =65536 - h
replica.socket.timeout.ms int =30000 - h
replication.quota.window.num int =11 range:1.. l
replication.quota.window.size.seconds int =1 range:1.. l
request.timeout.ms int =30000 - h
sasl.client.callback.handler.class class ~ - m
sasl.enabled.mechanisms list =GSSAPI liste: mp
sasl.jaas.config password ~ - mp
sasl.kerberos.kinit.cmd string =/usr/bin/kinit - mp
sasl.kerberos.min.time.before.relogin long =60000 - mp
sasl.kerberos.principal.to.local.rules list =DEFAULT liste: mp
sasl.kerberos.service.name string ~ - mp
sasl.kerberos.ticket.renew.jitter double =0.05 - mp
sasl.kerberos.ticket.renew.window.factor double =0.8 - mp
sasl.login.callback.handler.class class ~ - m
sasl.login.class class ~ - m
sasl.login.connect.timeout.ms int ~ - l
sasl.login.read.timeout.ms int ~ - l
sasl.login.refresh.buffer.seconds short =300 - mp
sasl.login.refresh.min.period.seconds short =60 - mp
sasl.login.refresh.window.factor double =0.8 - mp
sasl.login.refresh.window.jitter double =0.05 - mp
sasl.login.retry.backoff.max.ms long =10000 - l
sasl.login.retry.backoff.ms long =100 - l
sasl.mechanism.controller.protocol string =GSSAPI - h
sasl.mechanism.inter.broker.protocol string =GSSAPI - mp
sasl.oauthbearer.assertion.algorithm string =RS256 ci:ES256,RS256 m
sasl.oauthbearer.assertion.claim.aud string ~ - m
sasl.oauthbearer.assertion.claim.exp.seconds int =300 range:0..86400 l
sasl.oauthbearer.assertion.claim.iss string ~ - m
sasl.oauthbearer.assertion.claim.jti.include boolean =false - m
sasl.oauthbearer.assertion.claim.nbf.seconds int =60 range:0..3600 l
sasl.oauthbearer.assertion.claim.sub string ~ - m
sasl.oauthbearer.assertion.file string ~ - m
sasl.oauthbearer.assertion.private.key.file string ~ - m
sasl.oauthbearer.assertion.private.key.passphrase password ~ - m
sasl.oauthbearer.assertion.template.file string ~ - m
sasl.oauthbearer.client.credentials.client.id string ~ - m
sasl.oauthbearer.client.credentials.client.secret password ~ - m
sasl.oauthbearer.clock.skew.seconds int =30 - l
sasl.oauthbearer.expected.audience list = liste: h
sasl.oauthbearer.expected.issuer string ~ - h
sasl.oauthbearer.jwks.endpoint.refresh.ms long =3600000 - l
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms long =10000 - l
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms long =100 - l
sasl.oauthbearer.jwks.endpoint.url string ~ - m
sasl.oauthbearer.jwt.retriever.class class =org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever - m
sasl.oauthbearer.jwt.validator.class class =org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator - m
sasl.oauthbearer.scope string ~ - m
sasl.oauthbearer.scope.claim.name string =scope - l
sasl.oauthbearer.sub.claim.name string =sub - l
sasl.oauthbearer.token.endpoint.url string ~ - m
sasl.server.callback.handler.class class ~ - m
sasl.server.max.receive.size int =524288 - m
security.inter.broker.protocol string =PLAINTEXT in:PLAINTEXT,SSL,SASL_PLAINTEXT,SASL_SSL m
security.providers string ~ - l
server.max.startup.time.ms long =9223372036854775807 range:0.. mi
share.coordinator.append.linger.ms int =-1 range:-1.. m
share.coordinator.cached.buffer.max.bytes int =1048588 range:524288.. mc
share.coordinator.cold.partition.snapshot.interval.ms int =300000 range:1.. li
share.coordinator.load.buffer.size int =5242880 range:1.. h
share.coordinator.snapshot.update.records.per.snapshot int =500 range:0..500 m
share.coordinator.state.topic.compression.codec int =0 - h
share.coordinator.state.topic.min.isr short =2 range:1.. h
share.coordinator.state.topic.num.partitions int =50 range:1.. h
share.coordinator.state.topic.prune.interval.ms int =300000 range:1.. li
share.coordinator.state.topic.replication.factor short =3 range:1.. h
share.coordinator.state.topic.segment.bytes int =104857600 range:1.. h
share.coordinator.threads int =1 range:1.. m
share.coordinator.write.timeout.ms int =5000 range:1.. h
share.fetch.purgatory.purge.interval.requests int =1000 - m
socket.connection.setup.timeout.max.ms long =30000 - m
socket.connection.setup.timeout.ms long =10000 - m
socket.listen.backlog.size int =50 range:1.. m
socket.receive.buffer.bytes int =102400 - h
socket.request.max.bytes int =104857600 range:1.. h
socket.send.buffer.bytes int =102400 - h
ssl.allow.dn.changes boolean =false - l
ssl.allow.san.changes boolean =false - l
ssl.cipher.suites list = liste: mp
ssl.client.auth string =none in:required,requested,none mp
ssl.enabled.protocols list =TLSv1.2,TLSv1.3 liste: mp
ssl.endpoint.identification.algorithm string =https - lp
ssl.engine.factory.class class ~ - lp
ssl.key.password password ~ - mp
ssl.keymanager.algorithm string =SunX509 - mp
ssl.keystore.certificate.chain password ~ - mp
ssl.keystore.key password ~ - mp
ssl.keystore.location string ~ - mp
ssl.keystore.password password ~ - mp
ssl.keystore.type string =JKS - mp
ssl.principal.mapping.rules string =DEFAULT - l
ssl.protocol string =TLSv1.3 - mp
ssl.provider string ~ - mp
ssl.secure.random.implementation string ~ - lp
ssl.trustmanager.algorithm string =PKIX - mp
ssl.truststore.certificates password ~ - mp
ssl.truststore.location string ~ - mp
ssl.truststore.password password ~ - mp
ssl.truststore.type string =JKS - mp
telemetry.max.bytes int =1048576 range:1.. l
transaction.abort.timed.out.transaction.cleanup.interval.ms int =10000 range:1.. l
transaction.max.timeout.ms int =900000 range:1.. h
transaction.partition.verification.enable boolean =true - lc
transaction.remove.expired.transaction.cleanup.interval.ms int =3600000 range:1.. l
transaction.state.log.load.buffer.size int =5242880 range:1.. h
transaction.state.log.min.isr int =2 range:1.. h
transaction.state.log.num.partitions int =50 range:1.. h
transaction.state.log.replication.factor short =3 range:1.. h
transaction.state.log.segment.bytes int =104857600 range:1.. h
transaction.two.phase.commit.enable boolean =false - l
transactional.id.expiration.ms int =604800000 range:1.. h
unclean.leader.election.enable boolean =false - hc
unclean.leader.election.interval.ms long =300000 range:1.. mi
unstable.api.versions.enable boolean =false - hi
unstable.feature.versions.enable boolean =false - hi
"""
"""`server.properties`."""

BROKER_DYNAMIC_ONLY: Final = """\
follower.replication.throttled.rate long =9223372036854775807 range:0.. mc
leader.replication.throttled.rate long =9223372036854775807 range:0.. mc
replica.alter.log.dirs.io.max.bytes.per.second long =9223372036854775807 range:0.. mc
"""
"""Broker keys that exist only as dynamic configurations (replication quotas)."""

TOPIC: Final = """\
cleanup.policy list =delete liste:compact,delete m
compression.gzip.level int =-1 gzip-level m
compression.lz4.level int =9 range:1..17 m
compression.type string =producer in:uncompressed,zstd,lz4,snappy,gzip,producer m
compression.zstd.level int =3 range:-131072..22 m
delete.retention.ms long =86400000 range:0.. m
file.delete.delay.ms long =60000 range:0.. m
flush.messages long =9223372036854775807 range:1.. m
flush.ms long =9223372036854775807 range:0.. m
follower.replication.throttled.replicas list = throttled-replicas m
index.interval.bytes int =4096 range:0.. m
internal.segment.bytes int ~ - mi
leader.replication.throttled.replicas list = throttled-replicas m
local.retention.bytes long =-2 range:-2.. m
local.retention.ms long =-2 range:-2.. m
max.compaction.lag.ms long =9223372036854775807 range:1.. m
max.message.bytes int =1048588 range:0.. m
message.timestamp.after.max.ms long =3600000 range:0.. m
message.timestamp.before.max.ms long =9223372036854775807 range:0.. m
message.timestamp.type string =CreateTime in:CreateTime,LogAppendTime m
min.cleanable.dirty.ratio double =0.5 range:0..1 m
min.compaction.lag.ms long =0 range:0.. m
min.insync.replicas int =1 range:1.. m
preallocate boolean =false - m
remote.log.copy.disable boolean =false - m
remote.log.delete.on.disable boolean =false - m
remote.storage.enable boolean =false - m
retention.bytes long =-1 - m
retention.ms long =604800000 range:-1.. m
segment.bytes int =1073741824 range:1048576.. m
segment.index.bytes int =10485760 range:4.. m
segment.jitter.ms long =0 range:0.. m
segment.ms long =604800000 range:1.. m
unclean.leader.election.enable boolean =false - m
"""
"""Topic overrides."""

GROUP: Final = """\
consumer.assignment.interval.ms int =1000 range:0.. m
consumer.heartbeat.interval.ms int =5000 range:1.. m
consumer.session.timeout.ms int =45000 range:1.. m
share.assignment.interval.ms int =1000 range:0.. m
share.auto.offset.reset string =latest offset-reset m
share.delivery.count.limit int =5 range:2.. m
share.heartbeat.interval.ms int =5000 range:1.. m
share.isolation.level string =read_uncommitted in:read_committed,read_uncommitted m
share.partition.max.record.locks int =2000 range:100.. m
share.record.lock.duration.ms int =30000 range:1000.. m
share.renew.acknowledge.enable boolean =true - m
share.session.timeout.ms int =45000 range:1.. m
streams.assignment.interval.ms int =1000 range:0.. m
streams.heartbeat.interval.ms int =5000 range:1.. m
streams.initial.rebalance.delay.ms int =3000 range:0.. m
streams.num.standby.replicas int =0 range:0.. m
streams.session.timeout.ms int =45000 range:1.. m
"""
"""Group overrides (KIP-848, KIP-932, KIP-1071)."""

CLIENT_METRICS: Final = """\
interval.ms int =300000 - m
match list = liste: m
metrics list = liste: m
"""
"""Client metrics subscriptions (KIP-714)."""

CLIENT_QUOTA: Final = """\
consumer_byte_rate long =9223372036854775807 - m
controller_mutation_rate double =2.147483647E9 - m
producer_byte_rate long =9223372036854775807 - m
request_percentage double =2.147483647E9 - m
"""
"""Quotas of user and client-id entities."""

IP_QUOTA: Final = """\
connection_creation_rate int =2147483647 range:0.. m
"""
"""Quotas of ip entities."""

TOPIC_SYNONYMS: Final = """\
cleanup.policy log.cleanup.policy*1
compression.gzip.level compression.gzip.level*1
compression.lz4.level compression.lz4.level*1
compression.type compression.type*1
compression.zstd.level compression.zstd.level*1
delete.retention.ms log.cleaner.delete.retention.ms*1
file.delete.delay.ms log.segment.delete.delay.ms*1
flush.messages log.flush.interval.messages*1
flush.ms log.flush.interval.ms*1 log.flush.scheduler.interval.ms*1
index.interval.bytes log.index.interval.bytes*1
local.retention.bytes log.local.retention.bytes*1
local.retention.ms log.local.retention.ms*1
max.compaction.lag.ms log.cleaner.max.compaction.lag.ms*1
max.message.bytes message.max.bytes*1
message.timestamp.after.max.ms log.message.timestamp.after.max.ms*1
message.timestamp.before.max.ms log.message.timestamp.before.max.ms*1
message.timestamp.type log.message.timestamp.type*1
min.cleanable.dirty.ratio log.cleaner.min.cleanable.ratio*1
min.compaction.lag.ms log.cleaner.min.compaction.lag.ms*1
min.insync.replicas min.insync.replicas*1
preallocate log.preallocate*1
retention.bytes log.retention.bytes*1
retention.ms log.retention.ms*1 log.retention.minutes*60000 log.retention.hours*3600000
segment.bytes log.segment.bytes*1
segment.index.bytes log.index.size.max.bytes*1
segment.jitter.ms log.roll.jitter.ms*1 log.roll.jitter.hours*3600000
segment.ms log.roll.ms*1 log.roll.hours*3600000
unclean.leader.election.enable unclean.leader.election.enable*1
"""
"""Topic key, then the broker keys that provide its default (times the factor)."""

GROUP_SYNONYMS: Final = """\
consumer.assignment.interval.ms group.consumer.assignment.interval.ms
consumer.heartbeat.interval.ms group.consumer.heartbeat.interval.ms
consumer.session.timeout.ms group.consumer.session.timeout.ms
share.assignment.interval.ms group.share.assignment.interval.ms
share.delivery.count.limit group.share.delivery.count.limit
share.heartbeat.interval.ms group.share.heartbeat.interval.ms
share.partition.max.record.locks group.share.partition.max.record.locks
share.record.lock.duration.ms group.share.record.lock.duration.ms
share.session.timeout.ms group.share.session.timeout.ms
streams.assignment.interval.ms group.streams.assignment.interval.ms
streams.heartbeat.interval.ms group.streams.heartbeat.interval.ms
streams.initial.rebalance.delay.ms group.streams.initial.rebalance.delay.ms
streams.num.standby.replicas group.streams.num.standby.replicas
streams.session.timeout.ms group.streams.session.timeout.ms
"""
"""Group key, then the broker key that is its default."""

BROKER_SYNONYMS: Final = """\
log.flush.interval.ms log.flush.interval.ms log.flush.scheduler.interval.ms
log.retention.hours log.retention.ms log.retention.minutes log.retention.hours
log.retention.minutes log.retention.ms log.retention.minutes log.retention.hours
log.retention.ms log.retention.ms log.retention.minutes log.retention.hours
log.roll.hours log.roll.ms log.roll.hours
log.roll.jitter.hours log.roll.jitter.ms log.roll.jitter.hours
log.roll.jitter.ms log.roll.jitter.ms log.roll.jitter.hours
log.roll.ms log.roll.ms log.roll.hours
"""
"""Broker key, then all spellings of it; the first that is set wins."""

LISTENER_MECHANISM_KEYS: Final = (
    "connections.max.reauth.ms",
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
)

CLUSTER_LEVEL_LISTENER_KEYS: Final = (
    "max.connection.creation.rate",
    "max.connections",
    "num.network.threads",
)

SECURITY_KEYS: Final = (
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
)
