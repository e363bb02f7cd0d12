"""Pages of lists and the opaque, signed cursors between them, which are bound to one list and one caller."""

import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType
from sqlalchemy import Select

from app.access import Principal
from app.db.counts import MAX_COUNTED, count_statement
from app.db.database import Database, Row, Scoped
from app.errors import CursorExpired, CursorInvalid

CURSOR_TTL_SECONDS = 300
MAX_CURSOR_LENGTH = 2048
_SIGNATURE_BYTES = 16


class _Payload(msgspec.Struct, array_like=True):
    """What a cursor carries: when it expires and where its page starts."""

    expires: int
    position: list[Any]


class CursorSigner:
    """Signs and opens cursors with a secret that all replicas share."""

    def __init__(self, secret: bytes = b"", *, ttl_seconds: int = CURSOR_TTL_SECONDS) -> None:
        self._secret = secret
        self._ttl_seconds = ttl_seconds

    def load(self, secret: bytes) -> None:
        """Set the secret, which is known only once the database is open."""
        self._secret = secret

    def sign(self, position: list[Any], *, binding: str, now: float | None = None) -> str:
        """Return a cursor that continues after `position`, valid only for the list and caller named by `binding`."""
        expires = int(time.time() if now is None else now) + self._ttl_seconds
        payload = msgspec.msgpack.encode(_Payload(expires, position))
        return base64.urlsafe_b64encode(self._mac(payload, binding) + payload).rstrip(b"=").decode()

    def open(self, cursor: str, *, binding: str, now: float | None = None) -> list[Any]:
        """Return the position in a cursor or raise CursorInvalid or CursorExpired."""
        if len(cursor) > MAX_CURSOR_LENGTH:
            raise CursorInvalid
        try:
            raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError) as problem:
            raise CursorInvalid from problem
        signature, payload = raw[:_SIGNATURE_BYTES], raw[_SIGNATURE_BYTES:]
        if not hmac.compare_digest(signature, self._mac(payload, binding)):
            raise CursorInvalid
        try:
            opened = msgspec.msgpack.decode(payload, type=_Payload)
        except msgspec.DecodeError as problem:
            raise CursorInvalid from problem
        if opened.expires < (time.time() if now is None else now):
            raise CursorExpired
        return opened.position

    def _mac(self, payload: bytes, binding: str) -> bytes:
        message = len(binding).to_bytes(4, "big") + binding.encode() + payload
        return hmac.new(self._secret, message, hashlib.sha256).digest()[:_SIGNATURE_BYTES]


class Total(msgspec.Struct, frozen=True, kw_only=True):
    """How many items a list has on all pages together."""

    count: int
    """At most 10,000."""
    exact: bool
    """false: there are, or may be, more than `count`."""


class Page:
    """One page of a list: opens the caller's cursor and signs the next one, bound to caller, list and filters."""

    def __init__(
        self,
        signer: CursorSigner,
        who: Principal,
        name: str,
        *,
        limit: int,
        cursor: str | None,
        include_total: bool = False,
        **filters: Any,
    ) -> None:
        self.limit = limit
        self.include_total = include_total
        self._signer = signer
        given = sorted((key, str(value)) for key, value in filters.items() if value is not None)
        self._binding = msgspec.json.encode(
            [who.tenant_id, who.project_id, who.key_id, who.user_id, name, given]
        ).decode()
        self.after: list[Any] | None = None if cursor is None else signer.open(cursor, binding=self._binding)

    def cut(self, rows: list[Row], *, key: Callable[[Row], list[Any]]) -> tuple[list[Row], str | None]:
        """Return the rows of this page, of limit + 1 that were read, and the cursor of the next page, if any."""
        if len(rows) <= self.limit:
            return rows, None
        page = rows[: self.limit]
        return page, self.sign(key(page[-1]))

    def total_of(self, count: int, *, complete: bool = True) -> Total | UnsetType:
        """Return the total if the caller asked for it, of a list that is counted already, if it is `complete`."""
        exact = complete and count <= MAX_COUNTED
        return Total(count=min(count, MAX_COUNTED), exact=exact) if self.include_total else UNSET

    async def count(self, read: Callable[[], Awaitable[list[Row]]]) -> Total | UnsetType:
        """Return the total if the caller asked for it; `read` counts the rows of all pages, up to COUNT_LIMIT."""
        return self.total_of((await read())[0]["counted"]) if self.include_total else UNSET

    async def count_rows(self, db: Database, who: Scoped, statement: Select[Any]) -> Total | UnsetType:
        """Return the total if the caller asked for it, of a statement for all pages with the limit COUNT_LIMIT."""
        return await self.count(lambda: db.fetch(who, count_statement(statement)))

    def sign(self, position: list[Any]) -> str:
        """Return a cursor to a position in this list."""
        return self._signer.sign(position, binding=self._binding)
