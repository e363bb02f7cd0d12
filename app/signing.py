"""Ed25519 signatures of receipts, by a key from the settings or the database."""

import base64

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from app.db.database import Database

ALGORITHM = "Ed25519"
# Read the seed of the key that signs receipts.
SIGNING_SEED = "SELECT secret FROM service_secrets WHERE name = 'signing'"


class Signer:
    """Signs texts with the key of `seed`, or with one read from the database when first needed."""

    def __init__(self, db: Database, seed: bytes | None) -> None:
        self._db = db
        self._key = None if seed is None else Ed25519PrivateKey.from_private_bytes(seed)

    async def _load_key(self) -> Ed25519PrivateKey:
        if self._key is None:
            (row,) = await self._db.call(SIGNING_SEED)
            self._key = Ed25519PrivateKey.from_private_bytes(bytes(row["secret"]))
        return self._key

    async def sign(self, text: str) -> bytes:
        """Return the signature of a text in UTF-8."""
        return (await self._load_key()).sign(text.encode())

    async def public_key(self) -> bytes:
        """Return the 32 bytes that verify signatures."""
        return (await self._load_key()).public_key().public_bytes_raw()


def encode_base64(data: bytes) -> str:
    """Return bytes in base64."""
    return base64.b64encode(data).decode()
