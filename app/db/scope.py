"""The scope of a transaction: whose rows it may touch, which the row-level policies enforce."""

import msgspec

CROSS_PROJECT = "cross_project"
LEGAL_HOLD = "legal_hold"
SHARED = "shared"
# In place of a user's id: what every user has. No user has this id.
EVERY_USER = "*"


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """What `set_scope` receives at the start of every transaction."""

    tenant_id: str
    project_id: str | None = None
    agent_id: str = ""
    gardens: tuple[str, ...] = ()
    reach: str = ""
    user_id: str = EVERY_USER
    """The end user whose memory it is, with what all users share; '' is what all users share alone."""

    def arguments(self) -> tuple[str, str, str, list[str], str, str]:
        """Return the arguments of `set_scope`, in order."""
        return (self.tenant_id, self.project_id or "", self.agent_id, list(self.gardens), self.reach, self.user_id)

    @property
    def owner_user(self) -> str:
        """Return the user that owns what is written in this scope; '' is all users."""
        return "" if self.user_id == EVERY_USER else self.user_id


class ScopedFunction(msgspec.Struct, frozen=True, kw_only=True):
    """A SQL function whose first six parameters are the scope, so that it can be called in one round trip."""

    name: str
    arguments: int
    """How many arguments follow the scope."""
    columns: tuple[str, ...]
