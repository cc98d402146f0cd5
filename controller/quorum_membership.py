"""Commands about the voters of the quorum: to add, remove and update one (KIP-853). The errors are Kafka's.

One change at a time: it needs the one before to be committed, and a record of the leader's epoch. REQUEST_TIMED_OUT
stands for all that may be possible later. The leader may remove itself; it resigns once that is committed.
"""

from __future__ import annotations

from uuid import UUID

from raylog.controller.observers import Observers
from raylog.controller.quorum.quorum import Quorum
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_DIRECTORY_ID, BrokerId
from raylog.core.outcome import Outcome
from raylog.metadata.control_records import KRAFT_VERSIONS, ControlRecord, KRaftVersionChanged, VotersChanged
from raylog.metadata.features import KRAFT_FEATURE
from raylog.metadata.image import MetadataImage
from raylog.metadata.levels import METADATA_FEATURE, LevelRange
from raylog.metadata.node_roles import IDS_PER_ROLE, NodeRole
from raylog.metadata.voters import QuorumVoter, VoterSet

VOTERS_MAX = 15
"""More voters make each commit slower, and are no safer."""
LISTENERS_MAX = 16
"""Of one voter."""


def add_voter(
    image: MetadataImage,
    quorum: Quorum,
    voter: QuorumVoter,
    *,
    observers: Observers,
    levels: LevelRange | None,
    lag_ms_max: int,
    now: Now,
) -> Outcome[None, ControlRecord]:
    """Add an observer that has caught up within the last `lag_ms_max`; `levels` are the metadata levels it supports.

    Raises KafkaError: INVALID_REQUEST for a key or listeners that cannot be those of a controller, UNSUPPORTED_VERSION
    while `kraft.version` is 0, DUPLICATE_VOTER, also for another directory of a voter, REQUEST_TIMED_OUT.
    """
    first = NodeRole.CONTROLLER.first_id
    if not first <= voter.voter_id < first + IDS_PER_ROLE:
        raise _invalid(f"voter id {voter.voter_id}: controllers have ids from {first} to {first + IDS_PER_ROLE - 1}.")
    _check(voter)
    _check_change_possible(image, quorum)
    if voter.voter_id in quorum.voters:
        message = f"The voter id {voter.voter_id} is already in the set of voters {quorum.voters}."
        raise KafkaError(ErrorCode.DUPLICATE_VOTER, message)
    if len(quorum.voters) >= VOTERS_MAX:
        raise _invalid(f"The quorum has {len(quorum.voters)} voters; the most are {VOTERS_MAX}.")
    caught_up_ms = observers.caught_up_ms(voter.voter_id, voter.directory_id)
    if caught_up_ms is None or now.monotonic_ms - caught_up_ms > lag_ms_max:
        raise _later(f"Voter {voter} has not caught up with the metadata log, or does not fetch from the leader.")
    if levels is None:
        raise _later(f"The leader is not connected to voter {voter}, so the levels that it supports are unknown.")
    if image.metadata_level not in levels:
        level = f"The cluster is at {METADATA_FEATURE} level {image.metadata_level}"
        raise _invalid(f"{level}; voter {voter} supports levels {levels}.")
    return Outcome(None, [VotersChanged(quorum.voters.with_voter(voter))])


def remove_voter(
    image: MetadataImage, quorum: Quorum, voter_id: BrokerId, directory_id: UUID
) -> Outcome[None, ControlRecord]:
    """Raises KafkaError: UNSUPPORTED_VERSION, REQUEST_TIMED_OUT, VOTER_NOT_FOUND; INVALID_REQUEST for the last one."""
    _check_change_possible(image, quorum)
    _find(quorum, voter_id, directory_id)
    if len(quorum.voters) == 1:
        raise _invalid(f"Voter {voter_id} is the only one, and cannot be removed.")
    return Outcome(None, [VotersChanged(quorum.voters.without(voter_id))])


def update_voter(image: MetadataImage, quorum: Quorum, voter: QuorumVoter) -> Outcome[None, ControlRecord]:
    """Record the listeners of a voter; no records if they are known. Raises KafkaError as `remove_voter`."""
    _check(voter)
    if _find(quorum, voter.voter_id, voter.directory_id) == voter:
        return Outcome(None)
    _check_change_possible(image, quorum)
    return Outcome(None, [VotersChanged(quorum.voters.with_voter(voter))])


def check_report(quorum: Quorum, voter: QuorumVoter) -> None:
    """Check the listeners that a voter reports while `kraft.version` is 0. Raises KafkaError: INVALID_REQUEST,
    VOTER_NOT_FOUND."""
    _check(voter)
    if voter.voter_id not in quorum.voters:
        message = f"Voter {voter.voter_id} is not in the set of voters {quorum.voters}."
        raise KafkaError(ErrorCode.VOTER_NOT_FOUND, message)


def raise_kraft_version(quorum: Quorum, own: QuorumVoter) -> Outcome[None, ControlRecord]:
    """Set `kraft.version` to 1: from now on the log holds the voters, with the directory ids of their last fetches.

    `own` is the leader. Raises KafkaError(INVALID_UPDATE_VERSION) unless each voter has fetched in this epoch.
    """
    if not quorum.has_committed_in_epoch:
        raise _later("The leader has not committed a record of its epoch.")
    voters = [own]
    for voter_id in quorum.others:
        directory_id = quorum.progress[voter_id].directory_id
        if directory_id == NO_DIRECTORY_ID:
            message = f"{KRAFT_FEATURE} cannot be set to level 1. Controller {voter_id} does not fetch from the leader."
            raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, message)
        voters.append(QuorumVoter(voter_id, directory_id))
    return Outcome(None, [KRaftVersionChanged(KRAFT_VERSIONS[-1]), VotersChanged(VoterSet(voters))])


def _check(voter: QuorumVoter) -> None:
    if voter.directory_id == NO_DIRECTORY_ID:
        raise _invalid(f"voter id {voter.voter_id}: a directory id is required.")
    if not 0 < len(voter.endpoints) <= LISTENERS_MAX:
        raise _invalid(f"Voter {voter} must have 1 to {LISTENERS_MAX} listeners.")
    names = [name for name, _, _ in voter.endpoints]
    if len(set(names)) < len(names):
        raise _invalid(f"Voter {voter} has several listeners of the same name.")
    if not all(name and host and port for name, host, port in voter.endpoints):
        raise _invalid(f"Voter {voter} has a listener without a name, a host or a port.")


def _check_change_possible(image: MetadataImage, quorum: Quorum) -> None:
    level = image.feature_level(KRAFT_FEATURE)
    if level == 0:
        message = f"The voters cannot be changed while {KRAFT_FEATURE} is {level}; upgrade that feature."
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, message)
    if not quorum.has_committed_in_epoch:
        raise _later("The leader has not committed a record of its epoch.")
    if not quorum.may_change_voters:
        raise _later(f"The change of the voters at offset {quorum.voters_offset} is not committed.")


def _find(quorum: Quorum, voter_id: BrokerId, directory_id: UUID) -> QuorumVoter:
    voter = quorum.voters.get(voter_id)
    if voter is None or voter.directory_id != directory_id:
        message = f"Voter {voter_id} with directory id {directory_id} is not in the set of voters {quorum.voters}."
        raise KafkaError(ErrorCode.VOTER_NOT_FOUND, message)
    return voter


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def _later(message: str) -> KafkaError:
    return KafkaError(ErrorCode.REQUEST_TIMED_OUT, message)
