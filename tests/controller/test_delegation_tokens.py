"""Commands about delegation tokens: their times, who may renew and expire them, their limits, and their removal."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.config.delegation_tokens import DelegationTokenSettings
from raylog.controller import delegation_tokens
from raylog.controller.delegation_tokens import (
    NAMES_BYTES_MAX,
    RENEWERS_MAX,
    DelegationTokens,
    TokenIndex,
    remove_expired,
)
from raylog.core.config import LONG_MAX
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.password import Password
from raylog.metadata.image import MetadataImage, token_created
from raylog.metadata.records import DelegationTokenCreated, DelegationTokenExpiryChanged, DelegationTokenRemoved
from raylog.security.delegation_tokens import DelegationToken, TokenKey
from raylog.security.principal import ANONYMOUS, Principal
from tests.controller.metadata import carry_out

NOW = 1_700_000_000_000
HOUR = 3_600_000
MAX_LIFETIME, EXPIRY = 100 * HOUR, 10 * HOUR
ALICE, BOB, CAROL, DAVE = (Principal("User", name) for name in ("alice", "bob", "carol", "dave"))
SECRET = Password("key")
KEY = TokenKey(SECRET)
_long = st.integers(-(1 << 63), LONG_MAX)
_times = st.one_of(_long, st.sampled_from([-1, 0, 1, EXPIRY, MAX_LIFETIME, LONG_MAX - NOW, LONG_MAX]))


def settings(**changed: Any) -> DelegationTokenSettings:
    given = {"secret_key": SECRET, "max_lifetime_ms": MAX_LIFETIME, "expiry_time_ms": EXPIRY, "check_interval_ms": HOUR}
    return DelegationTokenSettings(**{**given, **changed})


class Bench:
    """An image, the commands about it, and a clock."""

    def __init__(self, **changed: Any) -> None:
        self.image = MetadataImage()
        self.tokens = DelegationTokens(settings(**changed))
        self.now = NOW
        self._ids = iter(range(1, 1 << 60))

    def create(self, owner: Principal = ALICE, *renewers: Principal, **changed: Any) -> DelegationToken:
        given = {"owner": owner, "requester": owner, "renewers": renewers, "max_lifetime_ms": -1, **changed}
        outcome = self.tokens.create(self.image, **given, new_id=lambda: UUID(int=next(self._ids)), now_ms=self.now)
        created = carry_out(self.image, outcome)
        assert created.hmac == self.secret(created.token)
        return created.token

    def secret(self, token: DelegationToken) -> bytes:
        return KEY.hmac_of(token.token_id)

    def renew(self, token: DelegationToken, by: Principal = ALICE, *, period_ms: int = -1) -> int:
        hmac = self.secret(token)
        return carry_out(
            self.image, self.tokens.renew(self.image, hmac, requester=by, period_ms=period_ms, now_ms=self.now)
        )

    def expire(self, token: DelegationToken, by: Principal = ALICE, *, period_ms: int = -1) -> int:
        hmac = self.secret(token)
        return carry_out(
            self.image, self.tokens.expire(self.image, hmac, requester=by, period_ms=period_ms, now_ms=self.now)
        )


@pytest.fixture
def bench() -> Bench:
    return Bench()


class TestCreate:
    def test_the_token_and_its_record(self, bench: Bench) -> None:
        token = bench.create(ALICE, BOB, CAROL, BOB, requester=DAVE)
        assert token == DelegationToken(
            "AAAAAAAAAAAAAAAAAAAAAQ", ALICE, DAVE, (BOB, CAROL), NOW, NOW + MAX_LIFETIME, NOW + EXPIRY
        )
        assert token_created(token) == DelegationTokenCreated(
            token.token_id, ALICE, DAVE, (BOB, CAROL), NOW, NOW + MAX_LIFETIME, NOW + EXPIRY
        )
        assert bench.image.delegation_tokens == {token.token_id: token}

    @pytest.mark.parametrize(
        ("wanted", "lifetime"), [(-1, MAX_LIFETIME), (0, MAX_LIFETIME), (HOUR, HOUR), (MAX_LIFETIME + 1, MAX_LIFETIME)]
    )
    def test_the_lifetime_is_at_most_that_of_the_configuration(self, bench: Bench, wanted: int, lifetime: int) -> None:
        token = bench.create(max_lifetime_ms=wanted)
        assert token.max_timestamp == NOW + lifetime
        assert token.expiry_timestamp == NOW + min(lifetime, EXPIRY)

    @given(_times, st.integers(1, LONG_MAX), st.integers(1, LONG_MAX))
    def test_no_time_overflows(self, wanted: int, max_lifetime_ms: int, expiry_time_ms: int) -> None:
        token = Bench(max_lifetime_ms=max_lifetime_ms, expiry_time_ms=expiry_time_ms).create(max_lifetime_ms=wanted)
        assert NOW < token.expiry_timestamp <= token.max_timestamp <= LONG_MAX

    @pytest.mark.parametrize(
        "changed",
        [
            {"owner": Principal("Cluster", "raylog"), "requester": ALICE},
            {"owner": Principal("", "bob"), "requester": ALICE},
            {"renewers": [BOB, Principal("Group", "staff")]},
            {"renewers": [Principal("User", "")]},
        ],
    )
    def test_only_users_are_owners_and_renewers(self, bench: Bench, changed: dict[str, Any]) -> None:
        """A token of a node of the cluster would permit everything."""
        with pytest.raises(KafkaError) as refused:
            bench.create(**changed)
        assert refused.value.code == ErrorCode.INVALID_PRINCIPAL_TYPE

    def test_a_principal_of_another_type_may_have_tokens_of_its_own(self, bench: Bench) -> None:
        assert bench.create(Principal("Service", "s")).owner == Principal("Service", "s")

    def test_no_id_begins_with_a_hyphen(self) -> None:
        """As an option of a command does."""
        ids = iter([UUID(int=0xF8 << 120), UUID(int=0xFB << 120), UUID(int=0xF7 << 120)])
        tokens = DelegationTokens(settings())
        outcome = tokens.create(
            MetadataImage(),
            owner=ALICE,
            requester=ALICE,
            renewers=(),
            max_lifetime_ms=0,
            new_id=lambda: next(ids),
            now_ms=NOW,
        )
        assert outcome.response.token.token_id.startswith("9")


class TestLimits:
    def refusal(self, bench: Bench, *arguments: Any, **changed: Any) -> str:
        with pytest.raises(KafkaError) as refused:
            bench.create(*arguments, **changed)
        assert refused.value.code == ErrorCode.POLICY_VIOLATION
        return refused.value.message

    def test_renewers(self, bench: Bench) -> None:
        users = [Principal("User", f"u{number}") for number in range(RENEWERS_MAX + 1)]
        assert len(bench.create(ALICE, *users[:-1], *users[:-1]).renewers) == RENEWERS_MAX
        assert f"at most {RENEWERS_MAX} renewers" in self.refusal(bench, ALICE, *users)

    @pytest.mark.parametrize("role", ["owner", "requester", "renewers"])
    def test_names(self, bench: Bench, role: str) -> None:
        given: dict[str, Any] = {"owner": Principal("User", "o"), "requester": Principal("User", "r"), "renewers": ()}
        long = Principal("User", "ö" * ((NAMES_BYTES_MAX - 2) // 2 + 1))
        given[role] = [long] if role == "renewers" else long
        assert f"at most {NAMES_BYTES_MAX} bytes" in self.refusal(bench, **given)

    def test_tokens_of_an_owner_and_of_the_cluster(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(delegation_tokens, "TOKENS_MAX", 10)
        monkeypatch.setattr(delegation_tokens, "TOKENS_PER_OWNER_MAX", 3)
        for _ in range(3):
            bench.create()
        assert "User:alice has 3" in self.refusal(bench)
        assert "User:alice has 3" in self.refusal(bench, requester=BOB)
        for number in range(7):
            bench.create(Principal("User", f"u{number % 3}"))
        assert "The cluster has 10 delegation tokens" in self.refusal(bench, BOB)
        bench.expire(next(iter(bench.image.delegation_tokens.values())))
        bench.create(BOB)


class TestRenew:
    @pytest.mark.parametrize(("wanted", "period"), [(-1, EXPIRY), (0, EXPIRY), (HOUR, HOUR), (EXPIRY + 1, EXPIRY)])
    def test_the_period_is_at_most_that_of_the_configuration(self, bench: Bench, wanted: int, period: int) -> None:
        token = bench.create()
        bench.now += HOUR
        assert bench.renew(token, period_ms=wanted) == NOW + HOUR + period
        assert bench.image.delegation_tokens[token.token_id].expiry_timestamp == NOW + HOUR + period

    def test_not_beyond_the_maximum(self, bench: Bench) -> None:
        token = bench.create(max_lifetime_ms=EXPIRY + 5)
        bench.now += EXPIRY - 1
        assert bench.renew(token) == NOW + EXPIRY + 5

    def test_an_expired_token_cannot_be_renewed(self, bench: Bench) -> None:
        token = bench.create()
        bench.now = token.expiry_timestamp - 1
        bench.renew(token, period_ms=1)
        bench.now += 1
        with pytest.raises(KafkaError) as refused:
            bench.renew(token)
        assert refused.value.code == ErrorCode.DELEGATION_TOKEN_EXPIRED


class TestExpire:
    def test_the_period_is_not_limited_by_the_expiry_time(self, bench: Bench) -> None:
        token = bench.create()
        assert bench.expire(token, period_ms=20 * HOUR) == NOW + 20 * HOUR
        assert bench.expire(token, period_ms=LONG_MAX) == NOW + MAX_LIFETIME
        assert bench.image.delegation_tokens[token.token_id].expiry_timestamp == NOW + MAX_LIFETIME

    def test_zero_ends_it_now_and_keeps_it_until_expired_ones_are_removed(self, bench: Bench) -> None:
        token = bench.create()
        assert bench.expire(token, period_ms=0) == NOW
        assert bench.image.delegation_tokens[token.token_id].has_expired(NOW)
        with pytest.raises(KafkaError) as refused:
            bench.expire(token, period_ms=5)
        assert refused.value.code == ErrorCode.DELEGATION_TOKEN_EXPIRED

    @pytest.mark.parametrize("period_ms", [-1, -(1 << 63)])
    def test_a_negative_period_removes_it_even_if_it_has_expired(self, bench: Bench, period_ms: int) -> None:
        token, kept = bench.create(), bench.create()
        bench.now += EXPIRY
        assert bench.expire(token, period_ms=period_ms) == bench.now
        assert bench.image.delegation_tokens == {kept.token_id: kept}
        with pytest.raises(KafkaError) as refused:
            bench.expire(token)
        assert refused.value.code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


@pytest.mark.parametrize("command", ["renew", "expire"])
class TestBoth:
    def test_the_owner_and_the_renewers_may_and_nobody_else(self, bench: Bench, command: str) -> None:
        token = bench.create(ALICE, BOB, requester=DAVE)
        for principal in (CAROL, DAVE, ANONYMOUS, Principal("Group", "alice")):
            with pytest.raises(KafkaError) as refused:
                getattr(bench, command)(token, principal)
            assert refused.value.code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        for principal in (ALICE, BOB):
            getattr(bench, command)(token, principal, period_ms=HOUR)

    def test_a_secret_of_no_token(self, bench: Bench, command: str) -> None:
        token = bench.create()
        secret = bench.secret(token)
        for wrong in (b"", b"x" * 64, secret[:-1], secret + b"x", bytes([secret[0] ^ 1]) + secret[1:]):
            with pytest.raises(KafkaError) as refused:
                getattr(bench.tokens, command)(bench.image, wrong, requester=ALICE, period_ms=1, now_ms=NOW)
            assert refused.value.code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND

    @given(_times, _times)
    def test_no_time_overflows(self, command: str, wanted: int, lifetime_ms: int) -> None:
        bench = Bench(max_lifetime_ms=LONG_MAX, expiry_time_ms=LONG_MAX)
        token = bench.create(max_lifetime_ms=lifetime_ms)
        assert NOW <= getattr(bench, command)(token, period_ms=wanted) <= token.max_timestamp


@pytest.mark.parametrize("command", ["create", "renew", "expire"])
def test_without_a_key_tokens_are_disabled(command: str) -> None:
    bench, enabled = Bench(secret_key=None), Bench()
    token = enabled.create()
    asked: dict[str, Any] = {"requester": ALICE, "now_ms": NOW}
    if command == "create":
        asked |= {"owner": ALICE, "renewers": (), "max_lifetime_ms": 1, "new_id": lambda: UUID(int=1)}
    else:
        asked |= {"hmac": enabled.secret(token), "period_ms": 1}
    with pytest.raises(KafkaError) as refused:
        getattr(bench.tokens, command)(enabled.image, **asked)
    assert refused.value.code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


class TestRemoval:
    def test_expired_tokens_are_removed_in_parts(self, bench: Bench) -> None:
        lives = [bench.create(max_lifetime_ms=hours * HOUR) for hours in (3, 1, 1, 2, 1)]
        assert remove_expired(bench.image, now_ms=NOW + HOUR - 1, most=2).records == []
        first = remove_expired(bench.image, now_ms=NOW + HOUR, most=2)
        assert first.records == [DelegationTokenRemoved(lives[1].token_id), DelegationTokenRemoved(lives[2].token_id)]
        assert carry_out(bench.image, first)
        assert not carry_out(bench.image, remove_expired(bench.image, now_ms=NOW + HOUR, most=2))
        assert list(bench.image.delegation_tokens) == [lives[0].token_id, lives[3].token_id]


class TestIndex:
    """A token is found by its secret, whatever was created and removed between two searches."""

    @given(st.lists(st.one_of(st.none(), st.integers(0, 30)), max_size=60), st.booleans())
    def test_every_token_is_found_and_no_other(self, changes: list[int | None], from_snapshot: bool) -> None:
        """None creates a token, a number removes one."""
        bench, index, removed = Bench(), TokenIndex(KEY), []
        for change in changes:
            tokens = list(bench.image.delegation_tokens)
            if change is None:
                bench.create()
            elif change < len(tokens):
                removed.append(tokens[change])
                bench.image.replay(DelegationTokenRemoved(tokens[change]))
            else:
                for token_id in tokens[-1:]:
                    bench.image.replay(DelegationTokenExpiryChanged(token_id, NOW))
                    assert index.find(bench.image.delegation_tokens, KEY.hmac_of(token_id)) is not None
        image = bench.image.copy() if from_snapshot else bench.image
        for token_id, token in image.delegation_tokens.items():
            assert index.find(image.delegation_tokens, KEY.hmac_of(token_id)) == token
        for token_id in removed:
            assert index.find(image.delegation_tokens, KEY.hmac_of(token_id)) is None

    def test_removed_tokens_are_forgotten(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(delegation_tokens, "_FORGOTTEN_MAX", 10)
        bench = Bench()
        index = TokenIndex(KEY)
        for _ in range(200):
            token = bench.create()
            assert index.find(bench.image.delegation_tokens, bench.secret(token)) == token
            bench.expire(token)
        assert len(index) <= 12
