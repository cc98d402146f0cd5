"""What the handlers of a controller may use of it: a handler sees these services and nothing else of the controller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar
from uuid import UUID

from raylog.config.controller import ControllerSettings
from raylog.controller.broker_sessions import BrokerPresence, BrokerSessions
from raylog.controller.delegation_tokens import DelegationTokens
from raylog.controller.elections import TopicRule
from raylog.controller.listener_reports import ListenerReports
from raylog.controller.metadata_log import MetadataLog
from raylog.controller.mutation_quotas import MutationQuotas
from raylog.controller.observers import Observers
from raylog.controller.quorum.quorum import Quorum
from raylog.controller.voter import Voter
from raylog.core.clock import Now
from raylog.core.config import Configs
from raylog.core.ids import LeaderEpoch, Offset
from raylog.core.outcome import Outcome
from raylog.metadata.image import MetadataImage, TopicImage
from raylog.metadata.records import MetadataRecord
from raylog.metadata.voters import QuorumVoter
from raylog.security.authorization import Authorization
from raylog.security.password_cipher import PasswordCipher
from raylog.transport.endpoints import Endpoint
from raylog.transport.node import NodeIdentity

Response = TypeVar("Response")


class ControllerServices(Protocol):
    """Implemented by `Controller`."""

    identity: NodeIdentity
    authorization: Authorization
    configs: Configs
    settings: ControllerSettings
    new_id: Callable[[], UUID]
    endpoints: dict[str, Endpoint]

    voter: Voter
    metadata_log: MetadataLog
    sessions: BrokerSessions
    presence: BrokerPresence
    observers: Observers
    mutation_quotas: MutationQuotas
    delegation_tokens: DelegationTokens
    cipher: PasswordCipher
    """For passwords in the metadata log."""

    @property
    def image(self) -> MetadataImage: ...

    @property
    def quorum(self) -> Quorum: ...

    @property
    def is_active(self) -> bool: ...

    @property
    def leader_epoch(self) -> LeaderEpoch: ...

    @property
    def next_offset(self) -> Offset: ...

    @property
    def directory_id(self) -> UUID: ...

    @property
    def as_voter(self) -> QuorumVoter: ...

    listener_reports: ListenerReports

    def voters_with_listeners(self) -> list[QuorumVoter]: ...

    @property
    def configs_in_force(self) -> Configs: ...

    def topic_configs(self, topic: TopicImage) -> Configs: ...

    @property
    def allows_unclean(self) -> TopicRule: ...

    def check_active(self) -> None: ...

    def decide(self, outcome: Outcome[Response, MetadataRecord], now: Now) -> Response: ...
