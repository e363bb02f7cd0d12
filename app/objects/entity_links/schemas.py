"""Wire schemas of links between entities and objects."""

from uuid import UUID

from app.tenancy.schemas import Create


class EntityBind(Create, frozen=True, kw_only=True):
    object_id: UUID
    """The object's canonical id, or that of one of its versions."""
