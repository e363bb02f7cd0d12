"""Providers that fail: what waits, what is tried again and when, and that nothing is lost."""

import asyncio
import socket
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.embeddings.embedders import BACKOFF_SECONDS, GuardedEmbedder, backoff
from app.embeddings.models import ModelRow
from app.embeddings.tasks import LEAST_CHARACTERS
from app.providers.base import InputRefused, ProviderDown, ProviderError, ProviderMisconfigured
from app.providers.breaker import BreakerPolicy
from app.providers.fake import FakeEmbedder
from app.providers.http import JsonClient
from app.providers.remote import OpenAI, RemoteEmbedder
from tests.embeddings.conftest import Bench
from tests.embeddings.test_worker import other_tenant
from tests.providers.loopback import Answer, Asked, listening

pytestmark = pytest.mark.anyio

WORDS = ModelRow(
    model_id=1, provider="fake", model="words", version=1, dimensions=64, active=True, created_at=datetime.now(UTC)
)


def refuse(word: str) -> Any:
    return lambda text: InputRefused("fake/words refused it.") if word in text else None


async def test_at_emb_4_a_refused_unit_is_put_off_and_blocks_nobody(bench: Bench) -> None:
    bench.fake.refuses = refuse("poison")
    poison, *_ = await bench.notes("poison", *(f"fine {number}" for number in range(20)))
    started = datetime.now(UTC)
    async with bench.working():
        await bench.until(lambda: len(bench.vectors) == 20)
        await bench.until(lambda: bench.queue[0]["attempts"] == 1)
    failed = datetime.now(UTC)
    (line,) = bench.queue
    assert str(line["owner_id"]) == poison
    assert line["last_error"] == "provider_refused_input: fake/words refused it."
    assert started + timedelta(seconds=20) < line["available_at"] < failed + timedelta(seconds=37)
    bench.superuser.execute("UPDATE embedding_queue SET attempts = 8, available_at = now()")
    async with bench.working():
        await bench.until(lambda: bench.queue[0]["attempts"] == 9)
    assert 2800 < (bench.queue[0]["available_at"] - datetime.now(UTC)).total_seconds() < 4400, "and every hour so on"
    bench.fake.refuses = lambda text: None
    bench.superuser.execute("UPDATE embedding_queue SET available_at = now()")
    await bench.embed_all()
    assert len(bench.vectors) == 21


def fail(word: str) -> Any:
    """As a provider that falls over a text answers: as if it were down."""
    problem = ProviderDown("fake/words answered 500.", details={"provider": "fake", "status": 500})
    return lambda text: problem if word in text else None


async def test_8a_d11_a_text_that_a_provider_fails_on_is_put_off_alone(bench: Bench) -> None:
    bench.fake.refuses = fail("poison")
    other = await other_tenant(bench, "beta")
    poison, *_ = await bench.notes("poison", *(f"fine {number}" for number in range(20)))
    started = datetime.now(UTC)
    async with bench.working():
        await bench.until(lambda: len(bench.vectors) == 20, seconds=20)
        await bench.until(lambda: bench.queue[0]["attempts"] == 1, seconds=20)
        failed = datetime.now(UTC)
        await bench.notes("theirs", who=other)
        await bench.notes("and ours")
        await bench.until(lambda: len(bench.vectors) == 22, seconds=20)
    (line,) = bench.queue
    assert str(line["owner_id"]) == poison
    assert (line["attempts"], line["last_error"]) == (
        1,
        "provider_refused_input: fake/words works, but refuses this input: fake/words answered 500.",
    )
    assert started + timedelta(seconds=20) < line["available_at"] < failed + timedelta(seconds=37)
    assert {job["last_error"] for job in bench.jobs} <= {None}


async def test_8a_d11_many_such_texts_do_not_open_the_breaker(bench: Bench) -> None:
    bench.fake.refuses = fail("poison")
    await bench.notes(*(f"poison {number}" for number in range(40)), "fine")
    async with bench.working(embed_batch_size=8):
        await bench.until(lambda: len(bench.vectors) == 1, seconds=20)
        await bench.until(lambda: {line["attempts"] for line in bench.queue} == {1}, seconds=20)
    assert len(bench.queue) == 40


async def test_8a_d11_one_that_is_down_for_every_text_costs_no_unit_an_attempt(bench: Bench) -> None:
    async with listening(lambda _: Answer({"error": "out of memory"}, status=500)) as server:
        bench.instead = remote(server.url)
        await bench.notes(*(f"note {number}" for number in range(10)))
        async with bench.working(embed_breaker_half_open_seconds=0.2):
            await bench.until(lambda: len(server.asked) >= 12)
        assert {(line["attempts"], line["last_error"]) for line in bench.queue} == {(0, None)}
    assert len(bench.queue) == 10


def remote(url: str) -> RemoteEmbedder:
    return RemoteEmbedder(JsonClient("openai", url, backoff_seconds=0.01), OpenAI(), model="test", dimensions=64)


def vectors_of(asked: Asked) -> Answer:
    rows = [[1.0, float(len(text))] + [0.1] * 62 for text in asked.body["input"]]
    return Answer({"data": [{"index": place, "embedding": row} for place, row in enumerate(rows)]})


@pytest.mark.parametrize("status", [400, 413])
async def test_a_text_that_is_too_long_for_a_provider_is_embedded_as_far_as_it_goes(bench: Bench, status: int) -> None:
    def answer(asked: Asked) -> Answer:
        if any(len(text) > 1000 for text in asked.body["input"]):
            return Answer({"error": "fewer tokens, please"}, status=status)
        return vectors_of(asked)

    long = "word " * 600
    async with listening(answer) as server:
        bench.instead = remote(server.url)
        await bench.notes(long.strip(), "short")
        await bench.embed_all()
        assert len(bench.vectors) == 2
        sent = [text for asked in server.asked for text in asked.body["input"]]
        assert "short" in sent
        assert max(len(text) for text in sent if len(text) <= 1000) > 600, "no less than it takes"
        calls = len(server.asked)
        bench.superuser.execute(
            "INSERT INTO embedding_queue (tenant_id, project_id, owner_kind, owner_id, model_id, queued_at, "
            "available_at) SELECT tenant_id, project_id, 'note', note_id, 1, now(), now() FROM memory_notes"
        )
        bench.superuser.execute("UPDATE jobs SET status = 'pending', available_at = now() WHERE kind = 'embed'")
        await bench.embed_all()
        assert len(server.asked) == calls, "it counts as embedded, and is not asked for again"


async def test_a_text_that_is_refused_at_any_length_is_put_off(bench: Bench) -> None:
    async with listening(lambda _: Answer({"error": "no"}, status=400)) as server:
        bench.instead = remote(server.url)
        await bench.notes(" ".join(["word"] * 600))
        async with bench.working():
            await bench.until(lambda: bench.queue[0]["attempts"] == 1)
        assert [len(asked.body["input"][0]) > LEAST_CHARACTERS for asked in server.asked] == [True] * 4
    assert bench.queue[0]["last_error"].startswith("provider_refused_input: openai answered 400")


async def test_a_provider_is_left_alone_as_long_as_it_asks_for(bench: Bench) -> None:
    asked_at: list[float] = []

    class Watched(FakeEmbedder):
        async def embed(self, texts: Any, *, query: bool = False) -> Any:
            asked_at.append(time.monotonic())
            return await super().embed(texts, query=query)

    watched = bench.fakes["words"] = Watched(64, max_batch=1000)
    watched.problem = ProviderDown("fake/words answered 503.", retry_after=4.0, details={"status": 503})
    await bench.notes("note")
    async with bench.working(embed_breaker_half_open_seconds=0.1):
        await bench.until(lambda: len(asked_at) == 1)
        watched.problem = None
        await bench.notes("another one")
        await bench.drained(seconds=30)
    assert asked_at[1] - asked_at[0] > 3.9, "not even asked to see whether it is there"
    assert len(bench.vectors) == 2


async def test_questions_that_a_provider_fails_on_do_not_keep_others_from_asking() -> None:
    fake = FakeEmbedder(64)
    fake.refuses = fail("poison")
    guarded = GuardedEmbedder(WORDS, lambda _: fake, BreakerPolicy())
    for number in range(8):
        assert await guarded.embed_query(f"poison {number}", seconds=2) is None
    assert guarded.state == "closed"
    assert await guarded.embed_query("a good question", seconds=2) is not None
    fake.problem = ProviderDown("gone")
    for _ in range(5):
        assert await guarded.embed_query("a good question", seconds=2) is None
    assert guarded.state == "open"


async def test_nobody_is_left_alone_for_more_than_an_hour() -> None:
    clock, fake = Clock(), FakeEmbedder(64)
    guarded = GuardedEmbedder(WORDS, lambda _: fake, BreakerPolicy(), clock=clock)
    for asked, kept in ((600.0, 600.0), (1e9, 3600.0)):
        fake.problem = ProviderDown("busy", retry_after=asked)
        with pytest.raises(ProviderDown):
            await guarded.embed(["text"])
        assert guarded.pause_seconds == kept
        clock.now += kept - 1
        assert guarded.permit(1) == 0
        clock.now += 2
        assert guarded.permit(1) == 1


@pytest.mark.parametrize(
    "answer",
    [
        Answer(raw=b'{"x":' + b"[" * 5000 + b"]" * 5000 + b"}"),
        Answer(raw=b'{"data":' + b"[" * 5000),
        Answer(status=429, headers={"retry-after": "Mon, 01 Jan 2020 00:00:00 +99999999999999"}),
        Answer(status=503, headers={"retry-after": "Fri, 31 Dec 9999 23:59:59 -2359"}),
    ],
    ids=["deep", "deep and cut", "far away", "later than ever"],
)
async def test_a_query_is_done_without_a_provider_that_answers_absurdly(answer: Answer) -> None:
    async with listening(lambda _: answer) as server:
        embedder = remote(server.url)
        guarded = GuardedEmbedder(WORDS, lambda _: embedder, BreakerPolicy())
        assert await guarded.embed_query("tea", seconds=2) is None
        with pytest.raises(ProviderError):
            await guarded.embed(["tea"])
        await guarded.aclose()


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
        await bench.drained(seconds=20)
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
        await bench.drained(seconds=30)
    assert len(bench.vectors) == 3


async def test_an_outage_of_one_model_does_not_stop_another(bench: Bench) -> None:
    bench.model("other")
    bench.fake.problem = ProviderDown("gone")
    await bench.notes(*(f"note {number}" for number in range(5)))
    async with bench.working():
        await bench.until(lambda: len(bench.vectors) == 5)
        assert {row["model_id"] for row in bench.vectors} == {2}
        await bench.notes("a later one")
        await bench.until(lambda: len(bench.vectors) == 6, seconds=20)
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
    guarded = GuardedEmbedder(WORDS, lambda _: fake, BreakerPolicy(consecutive_downs=1000), clock=clock)

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
    assert 24 <= guarded.pause_seconds <= 36, "but it is left alone for half a minute"
    assert guarded.permit(32) == 0
    clock.now += 36
    assert not await ask(11)
    assert guarded.state == "open", "21 of 51"
    assert 90 < guarded.pause_seconds <= 120
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
    assert guarded.pause_seconds == 0
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
    assert time.monotonic() - started < 5


async def test_a_query_leaves_a_provider_alone_as_long_as_it_asks_for() -> None:
    now = [100.0]
    fake = FakeEmbedder(64)
    guarded = GuardedEmbedder(WORDS, lambda _: fake, BreakerPolicy(), clock=lambda: now[0])
    fake.problem = ProviderDown("busy", retry_after=30.0, details={"status": 429})
    assert await guarded.embed_query("tea", seconds=1) is None
    fake.problem = None
    calls = len(fake.calls)
    now[0] += 29
    assert await guarded.embed_query("tea", seconds=1) is None
    assert len(fake.calls) == calls
    now[0] += 2
    assert await guarded.embed_query("tea", seconds=1) is not None


async def test_a_question_is_not_asked_again_of_who_refuses_the_connection() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        client = JsonClient("openai", f"http://127.0.0.1:{taken.getsockname()[1]}")
        embedder = RemoteEmbedder(client, OpenAI(), model="test", dimensions=64)
        policy = BreakerPolicy(failure_rate=0.5, min_attempts=5, probe_seconds=60)
        took: list[float] = []
        for _ in range(3):
            guarded = GuardedEmbedder(WORDS, lambda _: embedder, policy)
            started = time.monotonic()
            assert await guarded.embed_query("tea", seconds=2) is None
            took.append(time.monotonic() - started)
            assert guarded.failing
        # The quickest of three: a pause of this machine is no second try.
        assert min(took) < 0.4
        started = time.monotonic()
        with pytest.raises(ProviderDown):
            await guarded.embed(["tea"])
        assert time.monotonic() - started > 0.8, "what nobody waits for is tried again"
        await guarded.aclose()
