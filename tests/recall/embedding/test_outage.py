"""Providers that fail: what waits, what is tried again and when, and that nothing is lost."""

import asyncio
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from app.providers.base import InputRefused, ProviderDown, ProviderError, ProviderMisconfigured
from app.providers.breaker import BreakerPolicy
from app.providers.fake import FakeEmbedder
from app.recall.embedding.embedders import BACKOFF_SECONDS, GuardedEmbedder, backoff
from app.recall.embedding.models import ModelRow
from tests.recall.embedding.conftest import Bench
from tests.recall.embedding.test_worker import other_tenant

pytestmark = pytest.mark.anyio

WORDS = ModelRow(
    model_id=1, provider="fake", model="words", version=1, dimensions=64, active=True, created_at=datetime.now(UTC)
)


def refuse(word: str) -> Any:
    return lambda text: InputRefused("fake/words refused it.") if word in text else None


async def test_at_emb_4_a_refused_unit_is_put_off_and_blocks_nobody(bench: Bench) -> None:
    bench.fake.refuses = refuse("poison")
    poison, *_ = await bench.notes("poison", *(f"fine {number}" for number in range(20)))
    async with bench.working():
        await bench.until(lambda: len(bench.vectors) == 20)
        await bench.until(lambda: bench.queue[0]["attempts"] == 1)
    (line,) = bench.queue
    assert str(line["owner_id"]) == poison
    assert line["last_error"] == "provider_refused_input: fake/words refused it."
    assert 20 < (line["available_at"] - datetime.now(UTC)).total_seconds() < 37
    bench.superuser.execute("UPDATE embedding_queue SET attempts = 8, available_at = now()")
    async with bench.working():
        await bench.until(lambda: bench.queue[0]["attempts"] == 9)
    assert 2800 < (bench.queue[0]["available_at"] - datetime.now(UTC)).total_seconds() < 4400, "and every hour so on"
    bench.fake.refuses = lambda text: None
    bench.superuser.execute("UPDATE embedding_queue SET available_at = now()")
    await bench.embed_all()
    assert len(bench.vectors) == 21


def test_back_off_is_half_2_5_15_30_60_minutes_within_a_fifth() -> None:
    assert [seconds / 60 for seconds in BACKOFF_SECONDS] == [0.5, 2, 5, 15, 30, 60]
    for attempt, minutes in enumerate([0.5, 2, 5, 15, 30, 60, 60, 60], start=1):
        for _ in range(50):
            assert 0.8 * minutes * 60 <= backoff(attempt) <= 1.2 * minutes * 60


@pytest.mark.parametrize("problem", [ProviderDown("gone"), ProviderMisconfigured("no key")])
async def test_while_a_provider_is_away_units_wait_unharmed_and_then_all_are_embedded(
    bench: Bench, problem: ProviderError
) -> None:
    bench.fake.problem = problem
    await bench.notes(*(f"note {number}" for number in range(50)))
    async with bench.working(embed_breaker_half_open_seconds=0.3):
        await bench.until(lambda: len(bench.fake.calls) >= 7)
        assert {(line["attempts"], line["last_error"]) for line in bench.queue} == {(0, None)}
        assert len(bench.queue) == 50
        (job,) = bench.jobs
        assert (job["kind"], job["last_error"]) == ("embed", None), "postponed, not failed"
        calls = len(bench.fake.calls)
        bench.fake.problem = None
        await bench.drained(seconds=3)
    assert len(bench.vectors) == 50
    if isinstance(problem, ProviderDown):
        sizes = [len(call) for call in bench.fake.calls]
        assert max(sizes[5:calls]) <= 3, "once it is known to be down, it is probed"


async def test_when_it_is_back_for_one_it_is_back_for_all(bench: Bench) -> None:
    bench.fake.problem = ProviderDown("gone")
    await bench.notes("ours")
    for name in ("beta", "gamma"):
        await bench.notes("theirs", who=await other_tenant(bench, name))
    async with bench.working(embed_breaker_half_open_seconds=3.0):
        await bench.until(lambda: len(bench.jobs) == 3 and all(job["status"] == "pending" for job in bench.jobs))
        await bench.until(lambda: all(job["available_at"] > datetime.now(UTC) for job in bench.jobs))
        bench.superuser.execute("UPDATE jobs SET available_at = now() + interval '1 hour' WHERE tenant_id <> 'acme'")
        bench.fake.problem = None
        await bench.drained(seconds=8)
    assert len(bench.vectors) == 3


async def test_an_outage_of_one_model_does_not_stop_another(bench: Bench) -> None:
    bench.model("other")
    bench.fake.problem = ProviderDown("gone")
    await bench.notes(*(f"note {number}" for number in range(5)))
    async with bench.working():
        await bench.until(lambda: len(bench.vectors) == 5)
        assert {row["model_id"] for row in bench.vectors} == {2}
        await bench.notes("a later one")
        await bench.until(lambda: len(bench.vectors) == 6, seconds=5)
    assert {line["model_id"] for line in bench.queue} == {1}


async def test_a_model_with_other_dimensions_than_it_is_registered_with_stores_nothing(bench: Bench) -> None:
    bench.fakes["words"] = FakeEmbedder(128)
    await bench.notes("note")
    async with bench.working(embed_breaker_half_open_seconds=0.2):
        await bench.until(lambda: len(bench.fake.calls) >= 2)
    assert bench.vectors == []
    assert bench.queue[0]["attempts"] == 0


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


async def test_at_emb_5_the_breaker_opens_probes_and_closes() -> None:
    clock, fake = Clock(), FakeEmbedder(64, max_batch=1000)
    guarded = GuardedEmbedder(WORDS, lambda _: fake, BreakerPolicy(downs_in_a_row=1000), clock=clock)

    async def ask(count: int) -> bool:
        assert guarded.permit(count) == count
        try:
            await guarded.embed(["text"] * count)
        except ProviderError:
            return False
        return True

    assert await ask(30)
    fake.problem = ProviderDown("gone")
    assert not await ask(10)
    assert guarded.state == "closed", "10 of 40 is no more than 40%"
    assert 24 <= guarded.rest <= 36, "but it is left alone for half a minute"
    assert guarded.permit(32) == 0
    clock.now += 36
    assert not await ask(11)
    assert guarded.state == "open", "21 of 51"
    assert 90 < guarded.rest <= 120
    clock.now += 121
    assert guarded.permit(32) == 3, "a probe"
    with pytest.raises(ProviderDown):
        await guarded.embed(["text"] * 3)
    assert guarded.state == "open"
    assert guarded.permit(32) == 0
    clock.now += 121
    fake.problem = None
    assert guarded.permit(32) == 3
    await guarded.embed(["text"] * 3)
    assert guarded.state == "closed"
    assert guarded.rest == 0
    assert guarded.permit(32) == 32, "and all that waited follows"


async def test_a_query_does_not_wait_for_a_provider_that_is_away_or_slow() -> None:
    fake = FakeEmbedder(64)
    guarded = GuardedEmbedder(WORDS, lambda _: fake, BreakerPolicy())
    vector = await guarded.embed_query("tea", seconds=1)
    assert vector is not None
    assert len(vector) == 64
    fake.problem = ProviderDown("gone")
    for _ in range(5):
        assert await guarded.embed_query("tea", seconds=1) is None
    calls = len(fake.calls)
    assert await guarded.embed_query("tea", seconds=1) is None
    assert len(fake.calls) == calls, "it is known to be away"

    class Slow(FakeEmbedder):
        async def embed(self, texts: Any, *, query: bool = False) -> Any:
            await asyncio.sleep(10)

    slow = GuardedEmbedder(WORDS, lambda _: Slow(64), BreakerPolicy())
    started = time.monotonic()
    assert await slow.embed_query("tea", seconds=0.1) is None
    assert time.monotonic() - started < 2
