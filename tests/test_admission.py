"""Admission: each tenant runs its share, the others wait in turn and no longer than a deadline."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.admission import AdmissionQueue, Ticket, hold, stepped_aside
from app.errors import RateLimited, Unavailable

pytestmark = pytest.mark.anyio


def make_queue(**changes: Any) -> AdmissionQueue:
    return AdmissionQueue(**{"capacity": 4, "tenant_share": 2, "seconds": 60, "max_waiting": 100, **changes})


async def settle() -> None:
    """Let every task run until it waits for something."""
    for _ in range(10):
        await asyncio.sleep(0)


def entering(queue: AdmissionQueue, tenant: str, key: str = "k", cost: int = 1) -> asyncio.Task[Ticket]:
    return asyncio.create_task(queue.enter(tenant, key, cost=cost))


async def test_a_tenant_waits_for_its_own_requests_only() -> None:
    queue = make_queue()
    held = [await queue.enter("a", "k") for _ in range(2)]
    third = entering(queue, "a")
    await settle()
    assert not third.done()
    other = await queue.enter("b", "k")
    assert other.held
    held[0].release()
    assert (await third).held


async def test_tenants_take_turns() -> None:
    queue = make_queue(capacity=1, tenant_share=1)
    order: list[str] = []

    async def run(tenant: str) -> None:
        ticket = await queue.enter(tenant, "k")
        order.append(tenant)
        ticket.release()

    held = await queue.enter("x", "k")
    tasks = [asyncio.create_task(run(tenant)) for tenant in ("a", "a", "a", "a", "b", "b", "c")]
    await settle()
    held.release()
    await asyncio.gather(*tasks)
    assert sorted(order[:3]) == ["a", "b", "c"]
    assert sorted(order[3:5]) == ["a", "b"]


async def test_a_tenant_that_was_idle_saved_nothing_up() -> None:
    queue = make_queue(capacity=1, tenant_share=1)
    for _ in range(50):
        (await queue.enter("a", "k")).release()
    held = await queue.enter("x", "k")
    order: list[str] = []

    async def run(tenant: str) -> None:
        ticket = await queue.enter(tenant, "k")
        order.append(tenant)
        ticket.release()

    tasks = [asyncio.create_task(run(tenant)) for tenant in ("b", "b", "b", "b", "a", "a")]
    await settle()
    held.release()
    await asyncio.gather(*tasks)
    assert "a" in order[:2]


async def test_keys_of_a_tenant_take_turns() -> None:
    queue = make_queue(capacity=1, tenant_share=1)
    order: list[str] = []

    async def run(key: str) -> None:
        ticket = await queue.enter("a", key)
        order.append(key)
        ticket.release()

    held = await queue.enter("a", "busy")
    tasks = [asyncio.create_task(run(key)) for key in ("busy", "busy", "busy", "calm")]
    await settle()
    held.release()
    await asyncio.gather(*tasks)
    assert order.index("calm") <= 1


async def test_an_expensive_request_takes_more_of_the_share() -> None:
    queue = make_queue()
    batch = await queue.enter("a", "k", cost=11)
    small = entering(queue, "a")
    await settle()
    assert not small.done()
    assert (await queue.enter("b", "k")).held
    batch.release()
    assert (await small).held


async def test_an_expensive_request_is_not_overtaken_for_ever() -> None:
    queue = make_queue(capacity=2)
    first, second = await queue.enter("a", "k"), await queue.enter("b", "k")
    batch = entering(queue, "c", cost=2)
    await settle()
    late = entering(queue, "d")
    await settle()
    first.release()
    await settle()
    assert not batch.done()
    assert not late.done()
    second.release()
    (await batch).release()
    assert (await late).held


async def test_refused_after_the_deadline() -> None:
    queue = make_queue(seconds=0.02)
    for tenant in ("a", "a", "b", "b"):
        await queue.enter(tenant, "k")
    with pytest.raises(RateLimited) as own:
        await queue.enter("a", "k")
    assert own.value.code == "tenant_busy"
    assert own.value.headers["retry-after"] == "1"
    with pytest.raises(Unavailable) as others:
        await queue.enter("c", "k")
    assert others.value.code == "overloaded"
    assert others.value.headers["retry-after"] == "1"


async def test_refused_at_once_when_too_many_wait() -> None:
    queue = make_queue(max_waiting=1)
    held = [await queue.enter("a", "k") for _ in range(2)]
    waiting = entering(queue, "a")
    await settle()
    with pytest.raises(RateLimited):
        await queue.enter("a", "k")
    for ticket in held:
        ticket.release()
    assert (await waiting).held


async def test_a_cancelled_request_leaves_its_place() -> None:
    queue = make_queue(capacity=1, tenant_share=1)
    held = await queue.enter("a", "k")
    gone, next_one = entering(queue, "a"), entering(queue, "a")
    await settle()
    gone.cancel()
    await settle()
    held.release()
    assert (await next_one).held
    # Cancelled after it was admitted and before it ran.
    (await next_one).release()
    held = await queue.enter("a", "k")
    admitted = entering(queue, "a")
    await settle()
    held.release()
    admitted.cancel()
    await settle()
    assert (await queue.enter("a", "k")).held


async def test_a_request_steps_aside_while_it_waits_for_something_else() -> None:
    queue = make_queue(capacity=1, tenant_share=1)
    ticket = await queue.enter("a", "k")
    hold(ticket)
    async with stepped_aside():
        other = await queue.enter("a", "k")
        queued = entering(queue, "a")
        await settle()
        asyncio.get_running_loop().call_soon(other.release)
    # Before the one that came later.
    assert ticket.held
    assert not queued.done()
    ticket.release()
    assert (await queued).held


async def test_without_a_ticket_nothing_is_given_away() -> None:
    async with stepped_aside():
        pass


@settings(max_examples=50, deadline=None)
@given(
    st.integers(1, 5),
    st.integers(1, 5),
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xy"), st.integers(1, 6)), max_size=40),
)
def test_everybody_runs_and_nobody_above_the_limits(
    capacity: int, share: int, requests: list[tuple[str, str, int]]
) -> None:
    running: Counter[str] = Counter()

    async def run(queue: AdmissionQueue, tenant: str, key: str, cost: int) -> None:
        ticket = await queue.enter(tenant, key, cost=cost)
        running[tenant] += ticket.cost
        assert running[tenant] <= share
        assert running.total() <= max(capacity, share)
        await asyncio.sleep(0)
        running[tenant] -= ticket.cost
        ticket.release()

    async def run_all() -> None:
        queue = AdmissionQueue(capacity=capacity, tenant_share=share, seconds=60, max_waiting=100)
        await asyncio.gather(*(run(queue, *request) for request in requests))

    asyncio.run(run_all())
    assert running.total() == 0
