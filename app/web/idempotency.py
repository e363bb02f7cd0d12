"""Idempotency-Key: the first response is stored in the transaction of its effect, and returned again for 24 hours.

A second request with the same key waits up to ten seconds for the transaction of the first, because its insert hits the
same index entry. Then it returns the stored response, or runs by itself when the first one failed and stored nothing.
"""

import hashlib
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
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
# Errors that are not stored: after 400 and 413 the caller corrects the body and sends it under the same key; the others
# depend on the caller or the moment, not on the request.
NOT_STORED = frozenset({400, 401, 403, 413, 429})

UseCase = Callable[[Session], Awaitable[Outcome[Any]]]


class EncodedResponse(msgspec.Struct, frozen=True):
    """A response body as it is sent and stored."""

    status: int
    body: bytes
    replayed: bool = False
    secret: bool = False
    """Whether it carries a secret, which no cache may keep."""


class IdempotentRequest:
    """One request that writes: its Idempotency-Key, if any, and what identifies it."""

    def __init__(self, *, who: Principal, method: str, path: str, key: str | None, request_hash: bytes, secret: str):
        self._who = who
        self._method = method
        self._path = path
        self._key = key
        self._request_hash = request_hash
        self._secret = secret

    @property
    def has_key(self) -> bool:
        """Whether the caller sent an Idempotency-Key."""
        return self._key is not None

    async def run(self, db: Database, scope: Scope, use_case: UseCase, *, sealed: bool = False) -> EncodedResponse:
        """Run a use case in one transaction and return its encoded response, or the stored one of the same key.

        `sealed` is for responses that carry a secret: they are stored so that only the caller's own key opens them.
        """
        response = await self._run(db, scope, use_case, sealed=sealed)
        return msgspec.structs.replace(response, secret=True) if sealed else response

    async def _run(self, db: Database, scope: Scope, use_case: UseCase, *, sealed: bool) -> EncodedResponse:
        if self._key is None:
            return await retried(lambda: _run_unstored(db, scope, use_case))
        address = {
            "tenant_id": scope.tenant_id,
            "key_id": self._who.key_id,
            "method": self._method,
            "path": self._path,
            "idempotency_key": self._key,
        }
        return await retried(lambda: self._run_stored(db, scope, use_case, address=address, sealed=sealed))

    async def _run_stored(
        self, db: Database, scope: Scope, use_case: UseCase, *, address: dict[str, Any], sealed: bool
    ) -> EncodedResponse:
        try:
            async with db.tenant(scope) as session:
                found = await self._claim(session, address)
                if found is not None:
                    return self._replay(found)
                response = encode_outcome(await use_case(session))
                body = self._seal(response.body) if sealed else response.body
                await queries.store_response(session, address=address, status=response.status, body=body, sealed=sealed)
                return response
        except ReplayedError:
            raise
        except AppError as problem:
            if problem.status < 500 and problem.status not in NOT_STORED and not problem.code.startswith("idempotency"):
                with suppress(AppError, DBAPIError):
                    # The error is raised either way; failing to store it must not hide it.
                    await self._store_error(db, scope, address, problem)
            raise

    async def _claim(self, session: Session, address: dict[str, Any]) -> dict[str, Any] | None:
        now = datetime.now(UTC)
        return await queries.claim_key(
            session, address=address, request_hash=self._request_hash, now=now, expires_at=now + KEPT_FOR
        )

    def _replay(self, found: dict[str, Any]) -> EncodedResponse:
        if bytes(found["request_hash"]) != self._request_hash:
            raise Conflict(
                "This Idempotency-Key was used for a different request; use a new key for a new request.",
                code="idempotency_mismatch",
            )
        body = bytes(found["body"])
        if found["status"] >= 400:
            raise ReplayedError(found["status"], **msgspec.json.decode(body))
        return EncodedResponse(found["status"], self._open(body) if found["sealed"] else body, replayed=True)

    async def _store_error(self, db: Database, scope: Scope, address: dict[str, Any], problem: AppError) -> None:
        body = msgspec.json.encode({"code": problem.code, "message": problem.message, "details": problem.details})
        async with db.tenant(scope) as session:
            if await self._claim(session, address) is None:
                await queries.store_response(session, address=address, status=problem.status, body=body, sealed=False)

    def _seal(self, body: bytes) -> bytes:
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


async def _run_unstored(db: Database, scope: Scope, use_case: UseCase) -> EncodedResponse:
    async with db.tenant(scope) as session:
        return encode_outcome(await use_case(session))


def encode_outcome(outcome: Outcome[Any]) -> EncodedResponse:
    """Return the response of an outcome: 202 when a job does the work, 201 when it was created, else 200."""
    status = 202 if outcome.accepted else 201 if outcome.created else 200
    return EncodedResponse(status, msgspec.json.encode(outcome.value))


def hash_request(query: bytes, body: bytes) -> bytes:
    """Return a hash of query and body that is the same for JSON in another order or spacing."""
    try:
        canonical = msgspec.json.encode(msgspec.json.decode(body), order="sorted") if body else b""
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        canonical = body
    return hashlib.sha256(len(query).to_bytes(4, "big") + query + canonical).digest()
