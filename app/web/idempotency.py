"""Idempotency-Key: the first response is stored in the transaction of its effect, and returned again for 24 hours.

A second request with the same key waits up to ten seconds for the transaction of the first, because its insert hits the
same index entry. Then it returns the stored response, or runs by itself when the first one failed and stored nothing.
"""

import hashlib
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from sqlalchemy.exc import DBAPIError

from app.access import Principal
from app.db.database import Database, Session
from app.db.retries import retried
from app.db.scope import Scope
from app.errors import AppError, Conflict, ReplayedError
from app.outcomes import Outcome
from app.web import queries

KEPT_FOR = timedelta(hours=24)
# Statuses that depend on the caller or the moment, not on the request.
NOT_STORED = frozenset({401, 403, 429})


class EncodedResponse(msgspec.Struct, frozen=True):
    """A response body as it is sent and stored."""

    status: int
    body: bytes
    replayed: bool = False


Answer = EncodedResponse


class Step:
    """The unit of work of one creating request; `stored` is the answer to give again, if there is one."""

    def __init__(self, session: Session, once: "IdempotentRequest", address: dict[str, Any] | None) -> None:
        self.session = session
        self.stored: Answer | None = None
        self._once = once
        self._address = address

    async def answer(self, status: int, body: msgspec.Struct) -> Answer:
        """Encodes the answer and, when the caller sent a key, stores it with the effect."""
        encoded = msgspec.json.encode(body)
        if self._address is not None:
            kept = self._once.seal(encoded) if self._once.sealed else encoded
            await queries.store_response(
                self.session, address=self._address, status=status, body=kept, sealed=self._once.sealed
            )
        return Answer(status, encoded)


class IdempotentRequest:
    """One request that writes: its Idempotency-Key, if any, and what identifies it."""

    def __init__(self, *, who: Principal, method: str, path: str, key: str | None, request_hash: bytes, secret: str):
        self.who = who
        self.sealed = False
        self._method = method
        self._path = path
        self._key = key
        self._request_hash = request_hash
        self._secret = secret

    @property
    def has_key(self) -> bool:
        """Whether the caller sent an Idempotency-Key."""
        return self._key is not None

    async def run(
        self,
        db: Database,
        scope: Scope,
        work: Callable[[Session], Awaitable[Outcome[Any]]],
        *,
        sealed: bool = False,
    ) -> EncodedResponse:
        """Run a use case in one transaction and return its encoded response, or the stored one of the same key.

        `sealed` is for responses that carry a secret: they are stored so that only the caller's own key opens them.
        """

        async def write() -> EncodedResponse:
            async with self.tenant(db, scope, sealed=sealed) as step:
                if step.stored is not None:
                    return step.stored
                outcome = await work(step.session)
                return await step.answer(status_of(outcome), outcome.value)

        return await retried(write)

    @asynccontextmanager
    async def tenant(self, db: Database, scope: Scope, *, sealed: bool = False) -> AsyncGenerator[Step]:
        """Open a transaction in `scope` that runs once for one Idempotency-Key."""
        self.sealed = sealed
        if self._key is None:
            async with db.tenant(scope) as session:
                yield Step(session, self, None)
            return
        address = {
            "tenant_id": scope.tenant_id,
            "key_id": self.who.key_id,
            "method": self._method,
            "path": self._path,
            "idempotency_key": self._key,
        }
        try:
            async with db.tenant(scope) as session:
                step = Step(session, self, address)
                step.stored = await self._claim(session, address)
                yield step
        except ReplayedError:
            raise
        except AppError as problem:
            if problem.status < 500 and problem.status not in NOT_STORED and not problem.code.startswith("idempotency"):
                with suppress(AppError, DBAPIError):
                    # The error is raised either way; failing to store it must not hide it.
                    await self._store_failure(db, scope, address, problem)
            raise

    async def _claim(self, session: Session, address: dict[str, Any]) -> Answer | None:
        now = datetime.now(UTC)
        found = await queries.claim_key(
            session, address=address, request_hash=self._request_hash, now=now, expires_at=now + KEPT_FOR
        )
        return None if found is None else self._replay(found)

    def _replay(self, found: dict[str, Any]) -> Answer:
        if bytes(found["request_hash"]) != self._request_hash:
            raise Conflict(
                "This Idempotency-Key was used for a different request; use a new key for a new request.",
                code="idempotency_mismatch",
            )
        body = bytes(found["body"])
        if found["status"] >= 400:
            raise ReplayedError(found["status"], **msgspec.json.decode(body))
        return Answer(found["status"], self._open(body) if found["sealed"] else body, replayed=True)

    async def _store_failure(self, db: Database, scope: Scope, address: dict[str, Any], problem: AppError) -> None:
        now = datetime.now(UTC)
        body = msgspec.json.encode({"code": problem.code, "message": problem.message, "details": problem.details})
        async with db.tenant(scope) as session:
            taken = await queries.claim_key(
                session, address=address, request_hash=self._request_hash, now=now, expires_at=now + KEPT_FOR
            )
            if taken is None:
                await queries.store_response(session, address=address, status=problem.status, body=body, sealed=False)

    def seal(self, body: bytes) -> bytes:
        """Encrypt a response with a key derived from the caller's secret."""
        nonce = os.urandom(12)
        return nonce + AESGCM(self._sealing_key()).encrypt(nonce, body, None)

    def _open(self, body: bytes) -> bytes:
        try:
            return AESGCM(self._sealing_key()).decrypt(body[:12], body[12:], None)
        except InvalidTag as problem:
            raise Conflict(
                "The first response was encrypted with a secret this key no longer has.", code="idempotency_mismatch"
            ) from problem

    def _sealing_key(self) -> bytes:
        salt = hashlib.sha256("\n".join((self._method, self._path, self._key or "")).encode() + self._request_hash)
        return HKDF(algorithm=hashes.SHA256(), length=32, salt=salt.digest(), info=b"palimpsest stored answer").derive(
            self._secret.encode()
        )


def encode_outcome(outcome: Outcome[Any]) -> EncodedResponse:
    """Encode an outcome whose request carried no Idempotency-Key."""
    return EncodedResponse(status_of(outcome), msgspec.json.encode(outcome.value))


def status_of(outcome: Outcome[Any]) -> int:
    """Return the HTTP status of an outcome."""
    return 201 if outcome.created else 200


# Names of before, until every domain returns outcomes.
Once = IdempotentRequest


def hash_request(query: bytes, body: bytes) -> bytes:
    """Return a hash of query and body that is the same for JSON in another order or spacing."""
    try:
        canonical = msgspec.json.encode(msgspec.json.decode(body), order="sorted") if body else b""
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        canonical = body
    return hashlib.sha256(len(query).to_bytes(4, "big") + query + canonical).digest()
