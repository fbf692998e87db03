"""The parts of one broker that handlers may use."""

import logging

from ...effects.clock import Clock
from ...effects.disk import Disk
from ...effects.rng import Rng
from ...effects.threads import Executor
from ...protocol.errors import ErrorCode, KafkaError
from ...storage.store import Store
from ..config.live_settings import LiveSettings
from ..config.settings import BrokerSettings
from ..groups.configs import ConfigsByGroup
from ..groups.consumer.coordinator import ConsumerGroups
from ..groups.coordinator import GroupCoordinator
from ..groups.kinds import GroupKinds
from ..groups.offset_log import GroupOffsets
from ..groups.share.coordinator import ShareGroups
from ..metrics import Metrics
from ..net.server import Server
from ..net.timed_waiting import TimedWaiting
from ..net.turns import Turns
from ..net.waiting_places import WaitingPlaces
from ..ownership.other_nodes import OtherNodes
from ..producers.names_log import NamedProducers
from ..rounds import Rounds
from ..security.access import Access
from ..security.security_log import SecurityLog
from ..share.partitions import SharePartitions
from ..topics.producer_limit import ProducerLimit
from ..topics.topics import Topics
from ..transactions.admission import Admission
from ..transactions.coordinator import TransactionCoordinator
from ..transactions.ledger_log import Ledger
from ..upkeep.housekeeping import Housekeeping
from .fetch_sessions import FetchSessions
from .request_times import RequestTimes
from .share.sessions import ShareSessions
from .throttling import Throttling


class Services:
    """The parts of a broker, filled in by Broker while it starts. Handlers only read it."""

    live_settings: LiveSettings
    disk: Disk
    clock: Clock
    rng: Rng
    metrics: Metrics
    store: Store
    rounds: Rounds
    times: RequestTimes
    housekeeping: Housekeeping
    read_executor: Executor
    records_executor: Executor
    turns: Turns
    topics: Topics
    access: Access
    security_log: SecurityLog
    throttling: Throttling
    producer_limit: ProducerLimit
    groups: GroupCoordinator
    group_configs: ConfigsByGroup
    consumer_groups: ConsumerGroups
    share_groups: ShareGroups
    group_kinds: GroupKinds
    group_offsets: GroupOffsets
    transactions: TransactionCoordinator
    admission: Admission
    ledger: Ledger
    named_producers: NamedProducers
    share_partitions: SharePartitions
    share_sessions: ShareSessions
    waiting: TimedWaiting
    waiting_places: WaitingPlaces
    fetch_sessions: FetchSessions
    other_nodes: OtherNodes | None = None  # those that wait to take over; None: the journal is local
    server: Server

    def note_limit(self, api_name: str, host: str, client_id: str | None, error: KafkaError) -> None:
        """If the error is POLICY_VIOLATION, log which limit the client has met, because most responses have no field
        for that.
        """
        if error.code is ErrorCode.POLICY_VIOLATION:
            self.server.rare_log.write(
                logging.WARNING, "%s of %s (%r) is refused: %s", api_name, host, client_id, error.text
            )

    @property
    def settings(self) -> BrokerSettings:
        """The broker's current settings."""
        return self.live_settings.now

    @property
    def node_id(self) -> int:
        return self.live_settings.now.node_id

    @property
    def cluster_id(self) -> str:
        return self.topics.cluster_id
