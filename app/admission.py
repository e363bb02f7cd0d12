"""Admission of requests: how many run at once for each tenant, and in which order the others wait.

A request holds a ticket while it runs. Each tenant has a bounded share of the process, so that some of it is left for
others whatever one tenant sends. Requests above the share wait: tenants take turns by what they have used, the keys of
a tenant take turns, and the requests of one key keep their order. A request waits no longer than a deadline.
"""

import asyncio
import heapq
import time
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import ContextVar

from app.errors import AppError, RateLimited, Unavailable
from app.telemetry.metrics import ADMISSION_REFUSED, ADMISSION_SECONDS

RETRY_AFTER_SECONDS = 1


class Ticket:
    """The right of one request to run, weighted by what it is expected to cost."""

    __slots__ = ("cost", "held", "key", "queue", "tenant")

    def __init__(self, queue: "AdmissionQueue", tenant: str, key: str, cost: int) -> None:
        self.queue = queue
        self.tenant = tenant
        self.key = key
        self.cost = cost
        self.held = False

    def release(self) -> None:
        """Give the place to the next request; a ticket that is not held does nothing."""
        if self.held:
            self.held = False
            self.queue.leave(self)


class _Waiter:
    __slots__ = ("admitted", "ticket")

    def __init__(self, ticket: Ticket) -> None:
        self.ticket = ticket
        self.admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class _Tenant:
    """What one tenant runs, and its waiting requests by key."""

    __slots__ = ("keys", "name", "queued", "running", "used", "waiting")

    def __init__(self, name: str, used: float) -> None:
        self.name = name
        self.running = 0
        self.used = used
        self.waiting = 0
        self.queued = False
        self.keys: OrderedDict[str, deque[_Waiter]] = OrderedDict()

    def add(self, waiter: _Waiter, *, first: bool) -> None:
        key = waiter.ticket.key
        waiters = self.keys.setdefault(key, deque())
        if first:
            waiters.appendleft(waiter)
            self.keys.move_to_end(key, last=False)
        else:
            waiters.append(waiter)
        self.waiting += 1

    def next(self) -> _Waiter | None:
        """Return the waiter whose turn it is, without those that gave up."""
        while self.keys:
            key, waiters = next(iter(self.keys.items()))
            while waiters and waiters[0].admitted.done():
                waiters.popleft()
            if waiters:
                return waiters[0]
            del self.keys[key]
        return None

    def take(self) -> None:
        """Remove the waiter whose turn it is, and let the next key have the next turn."""
        key, waiters = next(iter(self.keys.items()))
        waiters.popleft()
        self.waiting -= 1
        if waiters:
            self.keys.move_to_end(key)
        else:
            del self.keys[key]


class AdmissionQueue:
    """Admits requests up to a total cost, up to a share of it for each tenant, and lets the others wait in turn."""

    def __init__(self, *, capacity: int, tenant_share: int, seconds: float, max_waiting: int) -> None:
        self._capacity = max(capacity, tenant_share)
        self._share = tenant_share
        self._seconds = seconds
        self._max_waiting = max_waiting
        self._running = 0
        self._used = 0.0
        self._tenants: dict[str, _Tenant] = {}
        # Tenants with a waiting request that their share allows, the one that used least first.
        self._turns: list[tuple[float, int, _Tenant]] = []
        self._entered = 0

    async def enter(self, tenant: str, key: str, *, cost: int = 1) -> Ticket:
        """Return a ticket once it is this request's turn; raise RateLimited or Unavailable after the deadline."""
        ticket = Ticket(self, tenant, key, max(1, min(cost, self._share)))
        await self.resume(ticket, first=False)
        return ticket

    async def resume(self, ticket: Ticket, *, first: bool = True) -> None:
        """Wait until the ticket is held; `first` before others of the same tenant."""
        tenant = self._tenants.get(ticket.tenant)
        if tenant is None:
            tenant = self._tenants[ticket.tenant] = _Tenant(ticket.tenant, self._used)
        if not self._turns and not tenant.waiting and self._fits(tenant, ticket):
            self._start(tenant, ticket)
            return
        if not first and tenant.waiting >= self._max_waiting:
            ADMISSION_REFUSED.labels("queue_full").inc()
            raise self._refusal(tenant, ticket)
        await self._wait(tenant, ticket, first=first)

    def _fits(self, tenant: _Tenant, ticket: Ticket) -> bool:
        return self._fits_share(tenant, ticket) and self._running + ticket.cost <= self._capacity

    def _fits_share(self, tenant: _Tenant, ticket: Ticket) -> bool:
        return tenant.running + ticket.cost <= self._share

    async def _wait(self, tenant: _Tenant, ticket: Ticket, *, first: bool) -> None:
        started = time.monotonic()
        waiter = _Waiter(ticket)
        tenant.add(waiter, first=first)
        self._queue(tenant)
        self._admit()
        try:
            async with asyncio.timeout(self._seconds):
                await waiter.admitted
        except TimeoutError as problem:
            self._forget(tenant, waiter)
            ADMISSION_REFUSED.labels("deadline").inc()
            raise self._refusal(tenant, ticket) from problem
        except asyncio.CancelledError:
            self._forget(tenant, waiter)
            raise
        ADMISSION_SECONDS.observe(time.monotonic() - started)

    def _forget(self, tenant: _Tenant, waiter: _Waiter) -> None:
        if waiter.ticket.held:
            # Admitted at the same moment.
            waiter.ticket.release()
            return
        waiter.admitted.cancel()
        tenant.waiting -= 1
        # The next request of the tenant may need less.
        self._queue(tenant)
        self._admit()

    def _refusal(self, tenant: _Tenant, ticket: Ticket) -> AppError:
        if self._fits_share(tenant, ticket):
            return Unavailable("The service is busy; try again shortly.", code="overloaded")
        return RateLimited(
            "Too many requests of this tenant run at once; send fewer at a time, or try again shortly.",
            retry_after=RETRY_AFTER_SECONDS,
            code="tenant_busy",
        )

    def _start(self, tenant: _Tenant, ticket: Ticket) -> None:
        ticket.held = True
        tenant.running += ticket.cost
        self._running += ticket.cost
        # An idle tenant saves nothing up: it starts where the others are.
        self._used = max(self._used, tenant.used)
        tenant.used = self._used + ticket.cost

    def _queue(self, tenant: _Tenant) -> None:
        """Give the tenant a turn if it waits and its share allows the next request."""
        waiter = tenant.next()
        if waiter is None:
            if not tenant.running and not tenant.queued:
                self._tenants.pop(tenant.name, None)
        elif not tenant.queued and self._fits_share(tenant, waiter.ticket):
            tenant.queued = True
            self._entered += 1
            heapq.heappush(self._turns, (tenant.used, self._entered, tenant))

    def _admit(self) -> None:
        """Start waiting requests as long as there is room, and keep the room for the one whose turn it is."""
        while self._turns:
            tenant = self._turns[0][2]
            waiter = tenant.next()
            if waiter is not None and self._fits_share(tenant, waiter.ticket):
                if self._running + waiter.ticket.cost > self._capacity:
                    return
                tenant.take()
                self._start(tenant, waiter.ticket)
                waiter.admitted.set_result(None)
            heapq.heappop(self._turns)
            tenant.queued = False
            self._queue(tenant)

    def leave(self, ticket: Ticket) -> None:
        """Take the place of a ticket back; called by the ticket."""
        tenant = self._tenants[ticket.tenant]
        tenant.running -= ticket.cost
        self._running -= ticket.cost
        self._queue(tenant)
        self._admit()


_current: ContextVar[Ticket | None] = ContextVar("admission_ticket", default=None)


def hold(ticket: Ticket) -> None:
    """Make a ticket that of the running request."""
    _current.set(ticket)


@asynccontextmanager
async def stepped_aside() -> AsyncGenerator[None]:
    """Let others run while this request waits for something else; it runs on when it is its turn again."""
    ticket = _current.get()
    if ticket is None or not ticket.held:
        yield
        return
    ticket.release()
    try:
        yield
    except Exception:
        await ticket.queue.resume(ticket)
        raise
    await ticket.queue.resume(ticket)
