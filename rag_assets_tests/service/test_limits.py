"""The rate limiter: never more than the bucket and its refill allow, for each key on its own."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rag_assets.service.limits import MOST_KEYS, RateLimiter


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@given(
    per_minute=st.integers(1, 600),
    steps=st.lists(st.tuples(st.floats(0, 60), st.sampled_from("ab")), max_size=80),
)
def test_no_more_than_bucket_and_refill_are_let_through(per_minute, steps):
    """In any time, each key gets at most its bucket and what flowed in meanwhile."""
    clock = Clock()
    limiter = RateLimiter(per_minute, clock=clock)
    passed = {"a": 0, "b": 0}
    for wait, key in steps:
        clock.now += wait
        passed[key] += limiter.take(key) == 0.0
        assert passed[key] <= per_minute + clock.now * per_minute / 60 + 1e-6


@given(per_minute=st.integers(1, 600))
def test_whoever_waits_as_told_gets_through(per_minute):
    """The seconds it says are enough, and not much too many."""
    clock = Clock()
    limiter = RateLimiter(per_minute, clock=clock)
    assert [limiter.take("a") for _ in range(per_minute)] == [0.0] * per_minute
    wait = limiter.take("a")
    assert 0 < wait <= 60 / per_minute + 1e-9
    clock.now += wait + 1e-9
    assert limiter.take("a") == 0.0


def test_keys_do_not_share_a_bucket_and_do_not_fill_the_memory():
    """A flood of addresses forgets the oldest only."""
    limiter = RateLimiter(1, clock=Clock())
    assert limiter.take("me") == 0.0
    for i in range(MOST_KEYS - 1):
        assert limiter.take(str(i)) == 0.0
    assert limiter.take("me") > 0
    for i in range(MOST_KEYS + 10):
        limiter.take(f"x{i}")
    assert len(limiter._buckets) == MOST_KEYS
