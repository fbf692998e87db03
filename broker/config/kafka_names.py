"""Names of Kafka's settings that have no effect here, so that an existing server.properties can be used.

HARMLESS ones (settings of other kinds of nodes, thread counts, ZooKeeper, KRaft) are accepted with one warning, if
Kafka would accept the value (kafka_options.py). Those that would promise a protection which this broker does not give
(security providers, policies) are refused, because to ignore them silently would be a lie.

Source: what DescribeConfigs of Kafka 4.3.1 lists for a broker, and the names that 4.0 removed.
"""

import re

HARMLESS_PREFIXES = ("zookeeper.", "listener.name.controller.", "rsm.config.", "rlmm.config.", "metrics.")
PROTECTION_PREFIXES = ("ssl.", "sasl.", "delegation.token.", "authorizer.")
_PROTECTION = """
alter.config.policy.class.name client.quota.callback.class create.topic.policy.class.name principal.builder.class
security.providers
"""
PROTECTION = frozenset(_PROTECTION.split())

_HARMLESS = """
add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms
alter.log.dirs.replication.quota.window.num alter.log.dirs.replication.quota.window.size.seconds
auto.leader.rebalance.enable background.threads broker.heartbeat.interval.ms broker.id.generation.enable broker.rack
broker.session.timeout.ms config.providers control.plane.listener.name controlled.shutdown.enable
controller.listener.names controller.quorum.append.linger.ms controller.quorum.auto.join.enable
controller.quorum.bootstrap.servers controller.quorum.election.backoff.max.ms controller.quorum.election.timeout.ms
controller.quorum.fetch.max.bytes controller.quorum.fetch.snapshot.max.bytes controller.quorum.fetch.timeout.ms
controller.quorum.request.timeout.ms controller.quorum.retry.backoff.ms controller.quorum.voters
controller.socket.timeout.ms cordoned.log.dirs default.replication.factor
delete.records.purgatory.purge.interval.requests early.start.listeners fetch.purgatory.purge.interval.requests
follower.fetch.last.tiered.offset.enable group.consumer.migration.policy group.coordinator.append.linger.ms
group.coordinator.background.threads group.coordinator.cached.buffer.max.bytes group.coordinator.rebalance.protocols
group.coordinator.threads group.streams.assignment.interval.ms group.streams.heartbeat.interval.ms
group.streams.initial.rebalance.delay.ms group.streams.max.assignment.interval.ms
group.streams.max.heartbeat.interval.ms group.streams.max.session.timeout.ms group.streams.max.size
group.streams.max.standby.replicas group.streams.min.assignment.interval.ms group.streams.min.heartbeat.interval.ms
group.streams.min.session.timeout.ms group.streams.num.standby.replicas group.streams.session.timeout.ms
initial.broker.registration.timeout.ms inter.broker.listener.name inter.broker.protocol.version
kafka.metrics.polling.interval.secs kafka.metrics.reporters leader.imbalance.check.interval.seconds
log.cleaner.dedupe.buffer.size log.cleaner.enable log.cleaner.io.buffer.load.factor log.cleaner.io.buffer.size
log.cleaner.io.max.bytes.per.second log.cleaner.threads log.dir.failure.timeout.ms log.flush.interval.messages
log.flush.interval.ms log.flush.offset.checkpoint.interval.ms log.flush.scheduler.interval.ms
log.flush.start.offset.checkpoint.interval.ms log.index.size.max.bytes log.initial.task.delay.ms
log.local.retention.bytes log.local.retention.ms log.message.downconversion.enable log.message.format.version
log.preallocate log.roll.jitter.hours log.roll.jitter.ms log.segment.delete.delay.ms metadata.log.dir
metadata.log.max.record.bytes.between.snapshots metadata.log.max.snapshot.interval.ms metadata.log.segment.bytes
metadata.log.segment.ms metadata.max.idle.interval.ms metadata.max.retention.bytes metadata.max.retention.ms
metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms num.io.threads num.network.threads
num.recovery.threads.per.data.dir num.replica.alter.log.dirs.threads num.replica.fetchers offsets.commit.timeout.ms
offsets.load.buffer.size offsets.topic.compression.codec offsets.topic.replication.factor password.encoder.secret
process.roles producer.purgatory.purge.interval.requests queued.max.requests remote.fetch.max.wait.ms
remote.list.offsets.request.timeout.ms remote.log.index.file.cache.total.size.bytes
remote.log.manager.copier.thread.pool.size remote.log.manager.copy.max.bytes.per.second
remote.log.manager.copy.quota.window.num remote.log.manager.copy.quota.window.size.seconds
remote.log.manager.expiration.thread.pool.size remote.log.manager.fetch.max.bytes.per.second
remote.log.manager.fetch.quota.window.num remote.log.manager.fetch.quota.window.size.seconds
remote.log.manager.follower.thread.pool.size remote.log.manager.task.interval.ms remote.log.manager.thread.pool.size
remote.log.metadata.custom.metadata.max.bytes remote.log.metadata.manager.class.name
remote.log.metadata.manager.class.path remote.log.metadata.manager.impl.prefix remote.log.metadata.manager.listener.name
remote.log.reader.max.pending.tasks remote.log.reader.threads remote.log.storage.manager.class.name
remote.log.storage.manager.class.path remote.log.storage.manager.impl.prefix remote.log.storage.system.enable
replica.fetch.backoff.ms replica.fetch.max.bytes replica.fetch.min.bytes replica.fetch.response.max.bytes
replica.fetch.wait.max.ms replica.high.watermark.checkpoint.interval.ms replica.lag.time.max.ms replica.selector.class
replica.socket.receive.buffer.bytes replica.socket.timeout.ms replication.quota.window.num
replication.quota.window.size.seconds request.timeout.ms reserved.broker.max.id sasl.mechanism.inter.broker.protocol
security.inter.broker.protocol share.coordinator.append.linger.ms share.coordinator.cached.buffer.max.bytes
share.coordinator.load.buffer.size share.coordinator.state.topic.compression.codec share.coordinator.state.topic.min.isr
share.coordinator.state.topic.replication.factor share.coordinator.threads share.coordinator.write.timeout.ms
share.fetch.purgatory.purge.interval.requests socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
socket.listen.backlog.size socket.receive.buffer.bytes ssl.endpoint.identification.algorithm telemetry.max.bytes
transaction.partition.verification.enable transaction.state.log.load.buffer.size transaction.state.log.min.isr
transaction.state.log.replication.factor
"""
HARMLESS = frozenset(_HARMLESS.split())


def is_harmless(name: str) -> bool:
    """Return whether this setting of Kafka may be ignored here without harm."""
    return name in HARMLESS or name in PROTECTION or name.startswith((*HARMLESS_PREFIXES, *PROTECTION_PREFIXES))


def promises_protection(name: str, text: str) -> bool:
    """Return whether this setting, with this value, promises a protection that the broker does not give, such as a
    security provider.
    """
    if name in HARMLESS or (name not in PROTECTION and not name.startswith(PROTECTION_PREFIXES)):
        return False
    return re.sub(r"[A-Z0-9_]+:", "", text.strip()).replace("PLAINTEXT", "").strip(",") not in ("", "none", "GSSAPI")
