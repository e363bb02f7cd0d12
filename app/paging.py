"""Pages of lists: where one goes on, for whom, and how the next one is named."""

from collections.abc import Callable
from typing import Any

import msgspec

from app.access import Principal
from app.cursors import CursorSigner
from app.db.database import Row


class Page:
    """Opens the caller's cursor and signs the next one, bound to caller, list and filters."""

    def __init__(
        self, signer: CursorSigner, who: Principal, name: str, *, limit: int, cursor: str | None, **filters: Any
    ) -> None:
        self.limit = limit
        self._signer = signer
        shown = sorted((key, str(value)) for key, value in filters.items() if value is not None)
        self._binding = msgspec.json.encode([who.tenant_id, who.project_id, who.key_id, name, shown]).decode()
        self.after: list[Any] | None = None if cursor is None else signer.open(cursor, binding=self._binding)

    def cut(self, rows: list[Row], *, key: Callable[[Row], list[Any]]) -> tuple[list[Row], str | None]:
        """The rows of this page, from limit + 1 that were read, and the cursor to the next page if there is one."""
        if len(rows) <= self.limit:
            return rows, None
        page = rows[: self.limit]
        return page, self.sign(key(page[-1]))

    def sign(self, position: list[Any]) -> str:
        """A cursor to a place in this list."""
        return self._signer.sign(position, binding=self._binding)
