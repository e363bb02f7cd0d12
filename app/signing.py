"""Ed25519 signatures of receipts, by a key from the settings or by the database with a key that it keeps to itself."""

import base64

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from app.db.database import Database, Session
from app.errors import StartupError

ALGORITHM = "Ed25519"
# Read the public part of the key that signs receipts in the database.
PUBLIC_KEY = "SELECT public_key FROM signing_keys WHERE purpose = 'receipts'"
# Sign the receipt of an erasure in the database.
SIGN_RECEIPT = "SELECT sign_receipt(%(receipt)s) AS signature"


class Signer:
    """Signs receipts with the key of `seed`, or without one by the database, which never hands its key out."""

    def __init__(self, db: Database, seed: bytes | None) -> None:
        self._db = db
        self._key = None if seed is None else Ed25519PrivateKey.from_private_bytes(seed)
        self._public_key = None if self._key is None else self._key.public_key().public_bytes_raw()

    async def public_key(self) -> bytes:
        """Return the 32 bytes that verify signatures."""
        if self._public_key is None:
            (row,) = await self._db.call(PUBLIC_KEY)
            self._public_key = bytes(row["public_key"])
        return self._public_key

    async def sign_receipt(self, session: Session, receipt: str) -> bytes:
        """Return the signature of a receipt in UTF-8, in the transaction of its erasure.

        Raise StartupError when the database signs with another key than the one it publishes.
        """
        if self._key is not None:
            return self._key.sign(receipt.encode())
        (row,) = await session.query(SIGN_RECEIPT, {"receipt": receipt})
        signature = bytes(row["signature"])
        try:
            Ed25519PublicKey.from_public_bytes(await self.public_key()).verify(signature, receipt.encode())
        except InvalidSignature as problem:
            raise StartupError(
                "The signature of a receipt does not fit the public key in signing_keys; restore the row of that table "
                "from a backup, or set SIGNING_KEY.",
                code="signing_key_mismatch",
            ) from problem
        return signature


def encode_base64(data: bytes) -> str:
    """Return bytes in base64."""
    return base64.b64encode(data).decode()
