"""Ed25519 signatures of what auditors keep, by a key of the environment or of the database."""

import base64

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from app.db.database import Database

ALGORITHM = "Ed25519"
# Read the seed of the key that signs receipts.
SIGNING_SEED = "SELECT secret FROM service_secrets WHERE name = 'signing'"


class Signer:
    """Signs texts; `seed` comes from the settings, or from the database when first needed."""

    def __init__(self, db: Database, seed: bytes | None) -> None:
        self._db = db
        self._key = None if seed is None else Ed25519PrivateKey.from_private_bytes(seed)

    async def _loaded(self) -> Ed25519PrivateKey:
        if self._key is None:
            (row,) = await self._db.call(SIGNING_SEED)
            self._key = Ed25519PrivateKey.from_private_bytes(bytes(row["secret"]))
        return self._key

    async def sign(self, text: str) -> bytes:
        """The signature of a text in UTF-8."""
        return (await self._loaded()).sign(text.encode())

    async def public_key(self) -> bytes:
        """The 32 bytes by which signatures are verified."""
        return (await self._loaded()).public_key().public_bytes_raw()


def encoded(data: bytes) -> str:
    """Bytes as they go out."""
    return base64.b64encode(data).decode()
