"""The recipes hold when those who follow them pause or die: names are unique, and former leaders write nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import raylog
from examples.recipes import election, work_queue
from examples.recipes.barrier import Barrier
from examples.recipes.configuration import Configuration
from examples.recipes.election import Candidate, Deposed, Leadership
from examples.recipes.lock import FencedStore, Lock
from examples.recipes.naming import Names
from examples.recipes.registry import Instance, Registry
from examples.recipes.work_queue import Replaced, Worker
from tests.support.cluster_thread import cluster_thread

ROOT = Path(__file__).resolve().parents[2]
CONFIG = {
    "group.min.session.timeout.ms": 100,
    "group.initial.rebalance.delay.ms": 0,
}
SETTINGS: dict[str, Any] = {"heartbeat_interval_ms": 100, "metadata_max_age_ms": 500}
IMPATIENT = SETTINGS | {"session_timeout_ms": 1_000, "max_poll_interval_ms": 1_000}
"""One that does not poll for a second is removed from its group."""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with cluster_thread(CONFIG, tmp_path_factory.mktemp("recipes")) as running:
        yield running.bootstrap_servers


def until(condition: Callable[[], Any]) -> Any:
    while not (found := condition()):
        pass
    return found


def values(servers: str, topic: str, *, partitions: int = 1) -> list[str]:
    """All that is committed."""
    with raylog.Consumer(
        bootstrap_servers=servers, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        consumer.assign([(topic, number) for number in range(partitions)])
        ends = consumer.end_offsets(consumer.assignment())
        found: list[str] = []
        while any(consumer.position(tp) < end for tp, end in ends.items()):
            found += [record.value.decode() for record in consumer.poll(0.1)]
        return found


class TestNames:
    def test_one_of_many_has_a_name(self, servers: str) -> None:
        """Five claim three names at the same time."""
        won: list[tuple[str, str]] = []
        barrier = threading.Barrier(5)

        def claim(owner: str) -> None:
            with Names(servers, owner) as names:
                barrier.wait()
                won.extend((name, owner) for name in "abc" if names.claim(name, f"address of {owner}"))

        threads = [threading.Thread(target=claim, args=(f"owner-{number}",)) for number in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert max(Counter(name for name, _ in won).values()) == 1
        with Names(servers, "reader") as names:
            for name, owner in won:
                assert (names.owner(name), names.address(name)) == (owner, f"address of {owner}")

    def test_a_name_is_no_part_of_another_one(self, servers: str) -> None:
        with Names(servers, "b/c") as other, Names(servers, "c") as owner:
            assert other.claim("part", "1")
            whole = "part/b"
            for call in (lambda: owner.claim(whole, "2"), lambda: owner.release(whole), lambda: owner.owner(whole)):
                with pytest.raises(ValueError, match="'part/b' must not contain a slash"):
                    call()
            assert owner.owner("part") == "b/c"
        for wrong in (lambda: Instance(servers, "a/b", "c", "1"), lambda: Barrier(servers, "a/b", "c", 1)):
            with pytest.raises(ValueError, match="'a/b' must not contain a slash"):
                wrong()

    def test_a_name_is_kept_over_a_restart_and_free_after_its_release(self, servers: str) -> None:
        with Names(servers, "alice") as alice:
            assert alice.claim("printer", "here")
        with Names(servers, "alice") as alice, Names(servers, "bob") as bob:
            assert not bob.claim("printer", "there")
            assert alice.claim("printer", "elsewhere")
            assert bob.address("printer") == "here"
            alice.release("printer")
            assert bob.owner("printer") is None
            assert bob.claim("printer", "there")


class TestRegistry:
    def test_instances_that_end_or_die_are_no_longer_there(self, servers: str) -> None:
        with Registry(servers, ttl=2.0) as registry:
            one = Instance(servers, "billing", "one", "host:1", seconds=0.05)
            two = Instance(servers, "billing", "two", "host:2", seconds=0.05)
            other = Instance(servers, "shipping", "one", "host:3", seconds=0.05)
            assert registry.addresses("billing") == {"one": "host:1", "two": "host:2"}
            one.close()
            assert registry.addresses("billing") == {"two": "host:2"}
            two.die()
            until(lambda: registry.addresses("billing") == {})
            assert registry.addresses("shipping") == {"one": "host:3"}
            other.close()
            two.close()


class TestConfiguration:
    def test_every_process_sees_all_changes_in_the_same_order(self, servers: str) -> None:
        changes: dict[str, list[tuple[str, str | None]]] = {"a": [], "b": []}

        def note(process: str) -> Callable[[str, str | None], None]:
            return lambda key, value: changes[process].append((key, value))

        with Configuration(servers, note("a")) as a, Configuration(servers, note("b")) as b:
            for number in range(20):
                a.set("limit", str(number))
                b.set("color", "blue" if number % 2 else None)
            a.set("last", "")
            for each in (a, b):
                while "last" not in each.values:
                    each.watch()
            assert changes["a"] == changes["b"]
            assert a.values == b.values == {"limit": "19", "color": "blue", "last": ""}
            assert [value for key, value in changes["a"] if key == "limit"] == [str(number) for number in range(20)]
        with Configuration(servers) as late:
            assert late.values == {"limit": "19", "color": "blue", "last": ""}


class TestElection:
    def test_a_leader_that_was_stopped_writes_nothing_after_its_successor(self, servers: str) -> None:
        """Its process is suspended, and goes on when another one leads."""
        command = [sys.executable, "-m", "examples.recipes.election", servers, "paused"]
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            token = int(process.stdout.readline().removeprefix("paused leads with token "))
            print("before", file=process.stdin, flush=True)
            assert process.stdout.readline() == "paused has written\n"
            process.send_signal(signal.SIGSTOP)
            with Candidate(servers, "example", "successor", **SETTINGS) as successor:
                leadership = until(lambda: successor.campaign(0.1))
                assert leadership.token > token
                leadership.write([(election.TOPIC, "successor", "mine")])
                process.send_signal(signal.SIGCONT)
                print("zombie", file=process.stdin, flush=True)
                assert process.stdout.readline() == "paused is deposed\n"
                leadership.write([(election.TOPIC, "successor", "still mine")])
            written = ["paused", "before", "successor", "mine", "still mine"]
            assert [value for value in values(servers, election.TOPIC) if value in {*written, "zombie"}] == written
        finally:
            process.kill()
            process.communicate()

    def test_a_former_leader_that_fences_its_successor_by_mistake_writes_nothing(self, servers: str) -> None:
        """It was elected, paused before its producer was initialized, and goes on when another one leads."""
        slow = Candidate(servers, "slow", "slow", **IMPATIENT)
        until(lambda: slow._consumer.poll(0.1) or slow._consumer.assignment())
        elected_as = slow._consumer.group_metadata()
        with Candidate(servers, "slow", "quick", **SETTINGS) as quick:
            leadership = until(lambda: quick.campaign(0.1))
            with pytest.raises(Deposed):
                Leadership(servers, "slow", "slow", elected_as)
            with pytest.raises(Deposed):
                leadership.write([(election.TOPIC, "quick", "fenced by mistake")])
            again = until(lambda: quick.campaign(0.1))
            again.write([(election.TOPIC, "quick", "leads again")])
        slow.close()
        found = values(servers, election.TOPIC)
        assert "slow" not in found
        assert "fenced by mistake" not in found
        assert found[-1] == "leads again"

    def test_a_candidate_follows_at_once_if_the_leader_closes(self, servers: str) -> None:
        with Candidate(servers, "closing", "second", session_timeout_ms=300_000) as second:
            first = Candidate(servers, "closing", "first", session_timeout_ms=300_000, heartbeat_interval_ms=100)
            leaders = until(lambda: [each for each in (first, second) if each.campaign(0.1)])
            (leader,) = leaders
            (other,) = {first, second} - {leader}
            token = leader.leadership.token
            leader.close()
            assert until(lambda: other.campaign(0.1)).token > token
            first.close()

    def test_a_new_candidate_does_not_replace_the_leader(self, servers: str) -> None:
        with Candidate(servers, "steady", "first", **SETTINGS) as first:
            leadership = until(lambda: first.campaign(0.1))
            with Candidate(servers, "steady", "second", **SETTINGS) as second:
                generation = leadership.elected_as.generation_id
                until(
                    lambda: (
                        second.campaign(0.1)
                        or (first.campaign(0.1) and leadership.elected_as.generation_id > generation)
                    )
                )
                leadership.write([(election.TOPIC, "first", "in the new generation")])
                assert first.leadership is leadership
                assert second.leadership is None

    def test_a_record_that_is_refused_ends_the_leadership_and_nothing_else(self, servers: str) -> None:
        with Candidate(servers, "refused", "only", **SETTINGS) as only:
            leadership = until(lambda: only.campaign(0.1))
            with pytest.raises(raylog.KafkaError, match="MESSAGE_TOO_LARGE"):
                leadership.write([(election.TOPIC, "fits", "fits"), (election.TOPIC, "large", "x" * 2_000_000)])
            assert until(lambda: only.campaign(0.1)).token > leadership.token
        assert "fits" not in values(servers, election.TOPIC)


class TestLock:
    def test_one_holder_at_a_time(self, servers: str) -> None:
        inside, most = 0, 0
        tokens: list[int] = []

        def use(owner: str) -> None:
            nonlocal inside, most
            with Lock(servers, "shared", owner, **SETTINGS) as held:
                inside += 1
                most = max(most, inside)
                tokens.append(held.token)
                held.write([(election.TOPIC, "shared", owner)])
                inside -= 1

        threads = [threading.Thread(target=use, args=(f"owner-{number}",)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (most, len(tokens)) == (1, 3)
        assert tokens == sorted(set(tokens))

    def test_a_holder_that_pauses_is_refused_by_topics_and_stores(self, servers: str) -> None:
        store = FencedStore()
        pausing = Lock(servers, "paused", "pausing", **IMPATIENT)
        held = pausing.acquire()
        store.put(held.token, "key", "before")
        with Lock(servers, "paused", "next", **SETTINGS) as following:
            store.put(following.token, "key", "after")
            with pytest.raises(PermissionError):
                store.put(held.token, "key", "too late")
            with pytest.raises(Deposed):
                held.write([(election.TOPIC, "key", "too late")])
        pausing.release()
        assert store.values == {"key": "after"}
        assert "too late" not in values(servers, election.TOPIC)

    def test_a_lock_whose_acquisition_is_interrupted(self, servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
        right = Candidate.campaign

        def campaign(self: Candidate, timeout: float) -> None:
            if right(self, timeout) is not None:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(Candidate, "campaign", campaign)
            with pytest.raises(KeyboardInterrupt):
                Lock(servers, "interrupted", "a", **SETTINGS).acquire()
        with Lock(servers, "interrupted", "b", **SETTINGS):
            pass

    def test_a_lock_that_stays_taken(self, servers: str) -> None:
        with Lock(servers, "taken", "one"), pytest.raises(TimeoutError):
            Lock(servers, "taken", "two").acquire(0.2)


class TestBarrier:
    def test_nobody_goes_on_before_all_are_there_and_nobody_leaves_before_all_have_done(self, servers: str) -> None:
        steps: list[str] = []

        def take_part(party: str) -> None:
            with Barrier(servers, "start", party, 3) as barrier:
                steps.append("arrived")
                barrier.enter()
                steps.append("done")
                barrier.leave()
                steps.append("left")

        threads = [threading.Thread(target=take_part, args=(f"party-{number}",)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert steps == ["arrived"] * 3 + ["done"] * 3 + ["left"] * 3

    def test_one_that_is_not_there_and_one_that_is_not_done_hold_up_the_others(self, servers: str) -> None:
        with Barrier(servers, "slow", "a", 2) as a, Barrier(servers, "slow", "b", 2) as b:
            with pytest.raises(TimeoutError):
                a.enter(0.1)
            b.enter()
            a.enter()
            with pytest.raises(TimeoutError):
                a.leave(0.1)
            b.leave()
            a.leave()

    def test_a_party_that_starts_again_arrives_once(self, servers: str) -> None:
        for _ in range(2):
            with Barrier(servers, "restart", "a", 2) as barrier, pytest.raises(TimeoutError):
                barrier.enter(0.1)


class TestQueue:
    def test_a_worker_that_fails_gets_its_items_again(self, servers: str) -> None:
        work_queue.create(servers)
        work_queue.put(servers, "1000", "1001")

        def fail(item: str) -> str:
            raise ValueError(item)

        with Worker(servers, "failing") as worker:
            with pytest.raises(ValueError, match="100"):
                until(lambda: worker.work(fail, 0.1))
            done = 0
            while done < 2:
                done += worker.work(str, 0.1)
        assert sorted(values(servers, work_queue.RESULTS)) == ["1000", "1001"]

    def test_each_item_is_done_once_although_workers_die_and_pause(self, servers: str) -> None:
        """One fails at its items and polls no more, and one pauses until others have its items."""
        work_queue.create(servers)
        before = values(servers, work_queue.RESULTS)
        items = [str(number) for number in range(40)]
        work_queue.put(servers, *items)

        def die(item: str) -> str:
            raise SystemExit(item)

        dying = Worker(servers, "dying", **IMPATIENT)
        with pytest.raises(SystemExit):
            until(lambda: dying.work(die, 0.1))
        pausing = Worker(servers, "pausing", **IMPATIENT)
        done = 0
        with Worker(servers, "steady", **SETTINGS) as steady:

            def pause(item: str) -> str:
                """Until the other worker has all partitions."""
                nonlocal done
                while len(steady._consumer.assignment()) < work_queue.PARTITIONS:
                    done += steady.work(str, 0.1)
                return f"{item} by a worker that was replaced"

            with pytest.raises(Replaced):
                until(lambda: pausing.work(pause, 0.1))
            while done < len(items):
                done += steady.work(str, 0.1)
        for worker in (dying, pausing):
            worker.close()
        assert sorted(values(servers, work_queue.RESULTS)[len(before) :], key=int) == items
