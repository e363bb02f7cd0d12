"""Opaque, signed cursors: a page's end, bound to its list and its caller, good for five minutes."""

import base64
import binascii
import hashlib
import hmac
import time
from typing import Any

import msgspec

from app.errors import CursorExpired, CursorInvalid

TTL_SECONDS = 300
MAX_LENGTH = 2048
_SIGNATURE_BYTES = 16


class _Payload(msgspec.Struct, array_like=True):
    expires: int
    position: list[Any]


class CursorSigner:
    """Signs and opens cursors with a secret all replicas share."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def sign(self, position: list[Any], *, binding: str, now: float | None = None) -> str:
        """A cursor that continues after `position`, only for the list and caller named by `binding`."""
        expires = int(time.time() if now is None else now) + TTL_SECONDS
        payload = msgspec.msgpack.encode(_Payload(expires, position))
        return base64.urlsafe_b64encode(self._mac(payload, binding) + payload).rstrip(b"=").decode()

    def open(self, cursor: str, *, binding: str, now: float | None = None) -> list[Any]:
        """The position in a cursor; CursorInvalid or CursorExpired when it cannot be used."""
        if len(cursor) > MAX_LENGTH:
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


class CursorSecret(CursorSigner):
    """A signer whose secret arrives when the application starts."""

    def __init__(self) -> None:
        super().__init__(b"")

    def load(self, secret: bytes) -> None:
        """Set the secret."""
        self._secret = secret
