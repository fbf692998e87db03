"""Settings of a Kafka broker that have no effect here, with the types, defaults and bounds that Kafka 4.3.1 has.

The rule: a value that Kafka would refuse is refused here too, in a request and in a file, because whoever wrote it made
a mistake that Kafka would have found. Source: AbstractKafkaConfig's ConfigDef, LogCleaner. Pure.
"""

from .options import ConfigType, Option

DOC = "Kafka's; nothing here has to obey it."
_OF_THE_CLUSTER = """
background.threads log.cleaner.dedupe.buffer.size log.cleaner.io.buffer.load.factor log.cleaner.io.buffer.size
log.cleaner.threads log.flush.interval.messages log.flush.interval.ms log.local.retention.bytes log.local.retention.ms
log.preallocate log.roll.jitter.ms log.segment.delete.delay.ms min.insync.replicas num.io.threads num.network.threads
num.recovery.threads.per.data.dir num.replica.fetchers unclean.leader.election.enable
"""
_OF_ONE_BROKER = """
sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.principal.to.local.rules
sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
sasl.login.refresh.window.jitter
"""
OF_ONE_BROKER = frozenset(_OF_ONE_BROKER.split())
SETTABLE = OF_ONE_BROKER | frozenset(_OF_THE_CLUSTER.split())
_TYPES = {
    "B": ConfigType.BOOLEAN,
    "S": ConfigType.STRING,
    "I": ConfigType.INT,
    "H": ConfigType.SHORT,
    "L": ConfigType.LONG,
    "D": ConfigType.DOUBLE,
    "T": ConfigType.LIST,
    "C": ConfigType.CLASS,
    "P": ConfigType.PASSWORD,
}
_NOT_NEGATIVE = """
add.partitions.to.txn.retry.backoff.max.ms controller.quorum.append.linger.ms controller.quorum.election.backoff.max.ms
controller.quorum.election.timeout.ms controller.quorum.fetch.timeout.ms controller.quorum.request.timeout.ms
controller.quorum.retry.backoff.ms group.streams.assignment.interval.ms group.streams.initial.rebalance.delay.ms
group.streams.max.assignment.interval.ms group.streams.max.standby.replicas group.streams.min.assignment.interval.ms
group.streams.num.standby.replicas log.cleaner.io.buffer.size log.flush.interval.ms
log.flush.offset.checkpoint.interval.ms log.flush.start.offset.checkpoint.interval.ms log.roll.jitter.hours
log.roll.jitter.ms log.segment.delete.delay.ms metadata.log.max.snapshot.interval.ms metadata.max.idle.interval.ms
remote.log.metadata.custom.metadata.max.bytes replica.fetch.backoff.ms replica.fetch.max.bytes
replica.fetch.response.max.bytes sasl.oauthbearer.assertion.claim.exp.seconds
sasl.oauthbearer.assertion.claim.nbf.seconds
"""
_ABOVE_ZERO = """
add.partitions.to.txn.retry.backoff.ms alter.log.dirs.replication.quota.window.num
alter.log.dirs.replication.quota.window.size.seconds background.threads controller.quorum.fetch.max.bytes
controller.quorum.fetch.snapshot.max.bytes delegation.token.expiry.check.interval.ms delegation.token.expiry.time.ms
delegation.token.max.lifetime.ms group.coordinator.background.threads group.coordinator.threads
group.streams.heartbeat.interval.ms group.streams.max.heartbeat.interval.ms group.streams.max.session.timeout.ms
group.streams.max.size group.streams.min.heartbeat.interval.ms group.streams.min.session.timeout.ms
group.streams.session.timeout.ms kafka.metrics.polling.interval.secs leader.imbalance.check.interval.seconds
log.dir.failure.timeout.ms log.flush.interval.messages metadata.log.max.record.bytes.between.snapshots
metrics.num.samples metrics.sample.window.ms min.insync.replicas num.io.threads num.network.threads
num.recovery.threads.per.data.dir num.replica.fetchers offsets.commit.timeout.ms offsets.load.buffer.size
offsets.topic.replication.factor queued.max.requests remote.fetch.max.wait.ms remote.list.offsets.request.timeout.ms
remote.log.index.file.cache.total.size.bytes remote.log.manager.copier.thread.pool.size
remote.log.manager.copy.max.bytes.per.second remote.log.manager.copy.quota.window.num
remote.log.manager.copy.quota.window.size.seconds remote.log.manager.expiration.thread.pool.size
remote.log.manager.fetch.max.bytes.per.second remote.log.manager.fetch.quota.window.num
remote.log.manager.fetch.quota.window.size.seconds remote.log.manager.follower.thread.pool.size
remote.log.manager.task.interval.ms remote.log.manager.thread.pool.size remote.log.reader.max.pending.tasks
remote.log.reader.threads replication.quota.window.num replication.quota.window.size.seconds
share.coordinator.load.buffer.size share.coordinator.state.topic.min.isr
share.coordinator.state.topic.replication.factor share.coordinator.threads share.coordinator.write.timeout.ms
socket.listen.backlog.size telemetry.max.bytes transaction.state.log.load.buffer.size transaction.state.log.min.isr
transaction.state.log.replication.factor
"""
_AT_LEAST = dict.fromkeys(_NOT_NEGATIVE.split(), 0) | dict.fromkeys(_ABOVE_ZERO.split(), 1)
_AT_LEAST |= {
    "log.cleaner.dedupe.buffer.size": 1_048_576,  # of each thread
    "log.cleaner.threads": 1,  # Kafka divides by it
    "group.coordinator.append.linger.ms": -1,
    "share.coordinator.append.linger.ms": -1,
    "group.coordinator.cached.buffer.max.bytes": 524288,
    "share.coordinator.cached.buffer.max.bytes": 524288,
    "log.index.size.max.bytes": 4,
    "log.local.retention.bytes": -2,
    "log.local.retention.ms": -2,
    "metadata.log.segment.bytes": 8388608,
}
_AT_MOST = {"sasl.oauthbearer.assertion.claim.exp.seconds": 86400, "sasl.oauthbearer.assertion.claim.nbf.seconds": 3600}
_KAFKAS = """
add.partitions.to.txn.retry.backoff.max.ms:I=100 add.partitions.to.txn.retry.backoff.ms:I=20
alter.config.policy.class.name:C alter.log.dirs.replication.quota.window.num:I=11
alter.log.dirs.replication.quota.window.size.seconds:I=1 auto.leader.rebalance.enable:B=true background.threads:I=10
broker.heartbeat.interval.ms:I=2000 broker.rack:S broker.session.timeout.ms:I=9000 client.quota.callback.class:C
config.providers:T= controlled.shutdown.enable:B=true controller.listener.names:T=
controller.quorum.append.linger.ms:I=25 controller.quorum.auto.join.enable:B=false
controller.quorum.bootstrap.servers:T= controller.quorum.election.backoff.max.ms:I=1000
controller.quorum.election.timeout.ms:I=1000 controller.quorum.fetch.max.bytes:I=1048576
controller.quorum.fetch.snapshot.max.bytes:I=1048576 controller.quorum.fetch.timeout.ms:I=2000
controller.quorum.request.timeout.ms:I=2000 controller.quorum.retry.backoff.ms:I=20 controller.quorum.voters:T=
controller.socket.timeout.ms:I=30000 cordoned.log.dirs:T= create.topic.policy.class.name:C
default.replication.factor:I=1 delegation.token.expiry.check.interval.ms:L=3600000
delegation.token.expiry.time.ms:L=86400000 delegation.token.max.lifetime.ms:L=604800000 delegation.token.secret.key:P
delete.records.purgatory.purge.interval.requests:I=1 early.start.listeners:T
fetch.purgatory.purge.interval.requests:I=1000 follower.fetch.last.tiered.offset.enable:B=false
group.coordinator.append.linger.ms:I=-1 group.coordinator.background.threads:I=2
group.coordinator.cached.buffer.max.bytes:I=1048588 group.coordinator.rebalance.protocols:T=classic,consumer
group.coordinator.threads:I=4 group.streams.assignment.interval.ms:I=1000 group.streams.heartbeat.interval.ms:I=5000
group.streams.initial.rebalance.delay.ms:I=3000 group.streams.max.assignment.interval.ms:I=15000
group.streams.max.heartbeat.interval.ms:I=15000 group.streams.max.session.timeout.ms:I=60000
group.streams.max.size:I=2147483647 group.streams.max.standby.replicas:I=2 group.streams.min.assignment.interval.ms:I=0
group.streams.min.heartbeat.interval.ms:I=5000 group.streams.min.session.timeout.ms:I=45000
group.streams.num.standby.replicas:I=0 group.streams.session.timeout.ms:I=45000
initial.broker.registration.timeout.ms:I=60000 inter.broker.listener.name:S kafka.metrics.polling.interval.secs:I=10
kafka.metrics.reporters:T= leader.imbalance.check.interval.seconds:L=300 log.cleaner.dedupe.buffer.size:L=134217728
log.cleaner.enable:B=true log.cleaner.io.buffer.load.factor:D=0.9 log.cleaner.io.buffer.size:I=524288
log.cleaner.io.max.bytes.per.second:D=1.7976931348623157E308 log.cleaner.threads:I=1 log.dir.failure.timeout.ms:L=30000
log.flush.interval.messages:L=9223372036854775807 log.flush.interval.ms:L
log.flush.offset.checkpoint.interval.ms:I=60000 log.flush.scheduler.interval.ms:L=9223372036854775807
log.flush.start.offset.checkpoint.interval.ms:I=60000 log.index.size.max.bytes:I=10485760 log.local.retention.bytes:L=-2
log.local.retention.ms:L=-2 log.preallocate:B=false log.roll.jitter.hours:I=0 log.roll.jitter.ms:L
log.segment.delete.delay.ms:L=60000 metadata.log.dir:S metadata.log.max.record.bytes.between.snapshots:L=20971520
metadata.log.max.snapshot.interval.ms:L=3600000 metadata.log.segment.bytes:I=1073741824
metadata.log.segment.ms:L=604800000 metadata.max.idle.interval.ms:I=500 metadata.max.retention.bytes:L=104857600
metadata.max.retention.ms:L=604800000 metric.reporters:T= metrics.num.samples:I=2 metrics.recording.level:S=INFO
metrics.sample.window.ms:L=30000 min.insync.replicas:I=1 num.io.threads:I=8 num.network.threads:I=3
num.recovery.threads.per.data.dir:I=2 num.replica.alter.log.dirs.threads:I num.replica.fetchers:I=1
offsets.commit.timeout.ms:I=5000 offsets.load.buffer.size:I=5242880 offsets.topic.compression.codec:I=0
offsets.topic.replication.factor:H=1 principal.builder.class:C process.roles:T=broker,controller
producer.purgatory.purge.interval.requests:I=1000 queued.max.requests:I=500 remote.fetch.max.wait.ms:I=500
remote.list.offsets.request.timeout.ms:L=30000 remote.log.index.file.cache.total.size.bytes:L=1073741824
remote.log.manager.copier.thread.pool.size:I=10 remote.log.manager.copy.max.bytes.per.second:L=9223372036854775807
remote.log.manager.copy.quota.window.num:I=11 remote.log.manager.copy.quota.window.size.seconds:I=1
remote.log.manager.expiration.thread.pool.size:I=10 remote.log.manager.fetch.max.bytes.per.second:L=9223372036854775807
remote.log.manager.fetch.quota.window.num:I=11 remote.log.manager.fetch.quota.window.size.seconds:I=1
remote.log.manager.follower.thread.pool.size:I=2 remote.log.manager.task.interval.ms:L=30000
remote.log.manager.thread.pool.size:I=2 remote.log.metadata.custom.metadata.max.bytes:I=128
remote.log.metadata.manager.class.name:S remote.log.metadata.manager.class.path:S
remote.log.metadata.manager.impl.prefix:S=rlmm.config. remote.log.metadata.manager.listener.name:S
remote.log.reader.max.pending.tasks:I=100 remote.log.reader.threads:I=10 remote.log.storage.manager.class.name:S
remote.log.storage.manager.class.path:S remote.log.storage.manager.impl.prefix:S=rsm.config.
remote.log.storage.system.enable:B=false replica.fetch.backoff.ms:I=1000 replica.fetch.max.bytes:I=1048576
replica.fetch.min.bytes:I=1 replica.fetch.response.max.bytes:I=10485760 replica.fetch.wait.max.ms:I=500
replica.high.watermark.checkpoint.interval.ms:L=5000 replica.lag.time.max.ms:L=30000 replica.selector.class:S
replica.socket.receive.buffer.bytes:I=65536 replica.socket.timeout.ms:I=30000 replication.quota.window.num:I=11
replication.quota.window.size.seconds:I=1 request.timeout.ms:I=30000 sasl.client.callback.handler.class:C
sasl.jaas.config:P sasl.kerberos.kinit.cmd:S=/usr/bin/kinit sasl.kerberos.min.time.before.relogin:L=60000
sasl.kerberos.principal.to.local.rules:T=DEFAULT sasl.kerberos.service.name:S sasl.kerberos.ticket.renew.jitter:D=0.05
sasl.kerberos.ticket.renew.window.factor:D=0.8 sasl.login.callback.handler.class:C sasl.login.class:C
sasl.login.connect.timeout.ms:I sasl.login.read.timeout.ms:I sasl.login.refresh.buffer.seconds:H=300
sasl.login.refresh.min.period.seconds:H=60 sasl.login.refresh.window.factor:D=0.8
sasl.login.refresh.window.jitter:D=0.05 sasl.login.retry.backoff.max.ms:L=10000 sasl.login.retry.backoff.ms:L=100
sasl.mechanism.controller.protocol:S sasl.mechanism.inter.broker.protocol:S sasl.oauthbearer.assertion.algorithm:S=RS256
sasl.oauthbearer.assertion.claim.aud:S sasl.oauthbearer.assertion.claim.exp.seconds:I=300
sasl.oauthbearer.assertion.claim.iss:S sasl.oauthbearer.assertion.claim.jti.include:B=false
sasl.oauthbearer.assertion.claim.nbf.seconds:I=60 sasl.oauthbearer.assertion.claim.sub:S
sasl.oauthbearer.assertion.file:S sasl.oauthbearer.assertion.private.key.file:S
sasl.oauthbearer.assertion.private.key.passphrase:P sasl.oauthbearer.assertion.template.file:S
sasl.oauthbearer.client.credentials.client.id:S sasl.oauthbearer.client.credentials.client.secret:P
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms:L=10000 sasl.oauthbearer.jwks.endpoint.retry.backoff.ms:L=100
sasl.oauthbearer.jwt.retriever.class:C sasl.oauthbearer.jwt.validator.class:C sasl.oauthbearer.scope:S
sasl.oauthbearer.scope.claim.name:S=scope sasl.oauthbearer.token.endpoint.url:S sasl.server.callback.handler.class:C
security.inter.broker.protocol:S=PLAINTEXT security.providers:S share.coordinator.append.linger.ms:I=-1
share.coordinator.cached.buffer.max.bytes:I=1048588 share.coordinator.load.buffer.size:I=5242880
share.coordinator.state.topic.compression.codec:I=0 share.coordinator.state.topic.min.isr:H=1
share.coordinator.state.topic.replication.factor:H=1 share.coordinator.threads:I=1
share.coordinator.write.timeout.ms:I=5000 share.fetch.purgatory.purge.interval.requests:I=1000
socket.connection.setup.timeout.max.ms:L=30000 socket.connection.setup.timeout.ms:L=10000
socket.listen.backlog.size:I=50 socket.receive.buffer.bytes:I=-1 ssl.allow.dn.changes:B=false
ssl.allow.san.changes:B=false ssl.endpoint.identification.algorithm:S= ssl.engine.factory.class:C
ssl.keymanager.algorithm:S=SunX509 ssl.keystore.certificate.chain:P ssl.keystore.key:P ssl.keystore.password:P
ssl.protocol:S=TLSv1.3 ssl.provider:S ssl.secure.random.implementation:S ssl.trustmanager.algorithm:S=PKIX
ssl.truststore.certificates:P ssl.truststore.password:P telemetry.max.bytes:I=1048576
transaction.partition.verification.enable:B=true transaction.state.log.load.buffer.size:I=5242880
transaction.state.log.min.isr:I=1 transaction.state.log.replication.factor:H=1 unclean.leader.election.enable:B=false
"""  # name:type=default; without a default it is null


def _option(word: str) -> Option:
    """Make the option from one entry of the table below, NAME:TYPE. Only the first letter of the type is used."""
    name, _, rest = word.partition(":")
    least, most = _AT_LEAST.get(name), _AT_MOST.get(name)
    settable = name in SETTABLE
    return Option(name, _TYPES[rest[0]], "", DOC, at_least=least, at_most=most, dynamic=settable, no_effect=True)


NO_EFFECT = {row.name: row for row in map(_option, _KAFKAS.split())}
DEFAULTS = {word.partition(":")[0]: word.partition("=")[2] if "=" in word else None for word in _KAFKAS.split()}
