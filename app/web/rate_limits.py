"""Rate limits: tokens are reserved from PostgreSQL in blocks and spent in memory, never above the limit."""

import asyncio
import math
import time
from uuid import UUID

from app.access import Principal, Work
from app.config import Settings
from app.db.database import Database
from app.errors import RateLimited, Unavailable
from app.telemetry.metrics import RATE_LIMITED
from app.web import queries

MAX_BUCKETS = 50_000
ATTEMPTS = 3
MAX_REFUSAL_SECONDS = 2.0
# A breach is written to the audit log, at most once in this time for a key.
BREACH_SECONDS = 60.0


class _Bucket:
    """The tokens this process holds of one key for one kind of work."""

    __slots__ = ("block", "breached", "expires", "free_at", "left", "lock", "refused_until", "slot")

    def __init__(self) -> None:
        self.left = 0
        self.block = 0
        self.slot = 0
        self.free_at = 0.0
        self.breached = -BREACH_SECONDS
        self.expires = 0.0
        self.refused_until = 0.0
        self.lock = asyncio.Lock()


class RateLimiter:
    """Counts requests of this process against blocks of tokens that all replicas reserve from one row."""

    def __init__(self, db: Database, settings: Settings) -> None:
        self._db = db
        self.defaults: dict[Work, int] = {
            "read": settings.rate_limit_read,
            "write": settings.rate_limit_write,
            "admin": settings.rate_limit_admin,
            "expand": settings.rate_limit_expand,
        }
        self._buckets: dict[tuple[str, Work], _Bucket] = {}

    async def take(self, who: Principal, work: Work) -> None:
        """Spend one token, or raise RateLimited with the seconds to wait."""
        limit = who.rate_limits.get(work, self.defaults[work])
        if limit == 0 or who.kind == "platform":
            return
        bucket = self._bucket((who.key_id, work))
        if self._spend(bucket):
            return
        # One reservation at a time for a bucket; waiting requests then use its tokens.
        async with bucket.lock:
            for _ in range(ATTEMPTS):
                if self._spend(bucket):
                    return
                if bucket.refused_until > time.monotonic():
                    self._raise_limited(bucket, work, limit)
                # A block granted at the end of its slot may expire before it arrives: then reserve again.
                await self._reserve(bucket, who, work, limit)
            if not self._spend(bucket):
                if bucket.refused_until > time.monotonic():
                    self._raise_limited(bucket, work, limit)
                raise Unavailable("The rate limit cannot be checked right now; try again shortly.")

    def _bucket(self, address: tuple[str, Work]) -> _Bucket:
        bucket = self._buckets.get(address)
        if bucket is None:
            if len(self._buckets) >= MAX_BUCKETS:
                # Dropping a bucket loses unspent tokens, which only makes the limit stricter.
                for old in list(self._buckets)[: MAX_BUCKETS // 10]:
                    del self._buckets[old]
            bucket = self._buckets[address] = _Bucket()
        return bucket

    @staticmethod
    def _spend(bucket: _Bucket) -> bool:
        if bucket.left > 0 and time.monotonic() < bucket.expires:
            bucket.left -= 1
            return True
        return False

    async def _reserve(self, bucket: _Bucket, who: Principal, work: Work, limit: int) -> None:
        # Small at first and doubled on demand, so that an idle replica holds few tokens.
        largest = max(1, limit // 10)
        requested = min(largest, bucket.block * 2) if time.monotonic() < bucket.expires else max(1, limit // 100)
        # Measured from before the call, so that the slot ends no later here than in the database.
        started = time.monotonic()
        breach = started > bucket.breached + BREACH_SECONDS
        returned, slot, bucket.left = bucket.left, bucket.slot, 0
        # No retry when the response is lost: returned tokens would be counted twice.
        (row,) = await self._db.call(
            queries.RESERVE_TOKENS,
            (who.tenant_id, UUID(who.key_id), work, limit, requested, returned, slot, breach),
            again=False,
        )
        bucket.left = row["granted"]
        bucket.block = requested
        bucket.slot = row["slot"]
        bucket.expires = started + row["slot_ends_ms"] / 1000
        if row["granted"] == 0:
            if breach:
                bucket.breached = started
            bucket.free_at = started + row["retry_ms"] / 1000
            # Not longer than this, since another replica may return tokens.
            bucket.refused_until = min(bucket.free_at, started + MAX_REFUSAL_SECONDS)

    @staticmethod
    def _raise_limited(bucket: _Bucket, work: Work, limit: int) -> None:
        RATE_LIMITED.labels(work).inc()
        wait = max(1, math.ceil(bucket.free_at - time.monotonic()))
        raise RateLimited(
            f"This key is limited to {limit} {work} requests a minute; try again in {wait} s.",
            retry_after=wait,
            details={"work": work, "limit_per_minute": limit},
        )
