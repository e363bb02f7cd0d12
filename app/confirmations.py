"""Signed tokens that confirm a large deletion: bound to the caller, the request and exactly the rows it would take."""

import hashlib
from collections.abc import Iterable
from typing import Any

import msgspec

from app.access import Principal
from app.errors import BadRequest, Conflict, CursorExpired, CursorInvalid
from app.paging import MAX_CURSOR_LENGTH, CursorSigner

# Deletions of more rows than this need a token.
CONFIRM_ABOVE = 25
MAX_TOKEN_LENGTH = MAX_CURSOR_LENGTH


class Confirmation:
    """The token of one deletion by one caller; `request` is what selects the rows, `noun` what they are called."""

    def __init__(
        self,
        signer: CursorSigner,
        who: Principal,
        action: str,
        *,
        token: str | None,
        noun: str = "notes",
        **request: Any,
    ) -> None:
        self._noun = noun
        self._signer = signer
        self._token = token
        given = sorted((name, str(value)) for name, value in request.items() if value is not None)
        self._binding = msgspec.json.encode(
            [who.tenant_id, who.project_id, who.key_id, who.user_id, action, given]
        ).decode()

    def issue(self, ids: Iterable[str]) -> str | None:
        """Return the token that confirms the deletion of these rows; None when they are too few to need one."""
        found = sorted(ids)
        if len(found) <= CONFIRM_ABOVE:
            return None
        return self._signer.sign([len(found), _digest(found)], binding=self._binding)

    def require(self, ids: Iterable[str]) -> None:
        """Raise Conflict unless these rows are few or the caller's token confirms exactly them."""
        found = sorted(ids)
        if len(found) <= CONFIRM_ABOVE:
            return
        if self._token is None:
            raise Conflict(
                f"This would delete {len(found)} {self._noun}. To confirm that, repeat the request with the "
                "confirm_token of these details.",
                code="confirmation_required",
                details={"count": len(found), "confirm_token": self.issue(found)},
            )
        try:
            count, digest = self._signer.open(self._token, binding=self._binding)
        except CursorExpired as problem:
            raise BadRequest(
                "confirm_token: it has expired; ask for a new one.", code="confirm_token_expired"
            ) from problem
        except (CursorInvalid, ValueError) as problem:
            raise BadRequest(
                "confirm_token: it was not issued to you for this request; ask for a new one.",
                code="confirm_token_invalid",
            ) from problem
        if digest != _digest(found):
            raise Conflict(
                f"What would be deleted has changed since the token was issued: {count} {self._noun} then, "
                f"{len(found)} now. Look at them again and ask for a new token.",
                code="confirmation_outdated",
                details={"count": len(found), "confirmed": count},
            )


def _digest(ids: list[str]) -> bytes:
    return hashlib.sha256("\n".join(ids).encode()).digest()
