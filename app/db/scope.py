"""The scope of a transaction: whose rows it may touch. The policies read it; nothing works without it."""

import msgspec

CROSS_PROJECT = "cross_project"
LEGAL_HOLD = "legal_hold"


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """What `set_scope` is told at the start of every transaction."""

    tenant_id: str
    project_id: str | None = None
    agent_id: str = ""
    gardens: tuple[str, ...] = ()
    reach: str = ""

    def arguments(self) -> tuple[str, str, str, list[str], str]:
        """The arguments of `set_scope`, in order."""
        return (self.tenant_id, self.project_id or "", self.agent_id, list(self.gardens), self.reach)
