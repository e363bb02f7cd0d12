"""Tables of erasure: tombstones, their revocations, and the receipts of what was destroyed."""

from sqlalchemy import (
    ARRAY,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKeyConstraint,
    Index,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
)

from app.db.metadata import metadata
from app.db.rls import Rule

# No foreign key to the entity: the tombstone outlives it.
tombstones = Table(
    "tombstones",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("tombstone_id", Uuid(as_uuid=False), nullable=False),
    Column("project_id", Text, nullable=False),
    Column("entity_id", Uuid(as_uuid=False), nullable=False),
    Column("entity", Text, nullable=True, comment="its name; nothing once it is erased"),
    Column("scopes", ARRAY(Text), nullable=True, comment="NULL: all"),
    Column("reason", Text, nullable=False, comment="empty once the entity is erased"),
    Column("created_by", Text, nullable=False),
    Column("key_id", Text, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("legal_hold", Boolean, nullable=False),
    Column("erase", Boolean, nullable=False),
    Column("erase_at", DateTime(timezone=True), nullable=True),
    Column("erased_at", DateTime(timezone=True), nullable=True),
    Column("named", Boolean, nullable=False, comment="notes that only name it count as mentioning it"),
    PrimaryKeyConstraint("tenant_id", "tombstone_id"),
    CheckConstraint("NOT (legal_hold AND erase)", name="erase"),
    Index("tombstones_entity_idx", "tenant_id", "entity_id"),
    Index("tombstones_list_idx", "tenant_id", "project_id", "created_at", "tombstone_id"),
    info={"rls": Rule.CUSTODY, "grants": "SELECT"},
)

tombstone_revocations = Table(
    "tombstone_revocations",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("revocation_id", Uuid(as_uuid=False), nullable=False),
    Column("project_id", Text, nullable=False),
    Column("tombstone_id", Uuid(as_uuid=False), nullable=False),
    Column("reason", Text, nullable=False),
    Column("revoked_by", Text, nullable=False),
    Column("key_id", Text, nullable=False),
    Column("revoked_at", DateTime(timezone=True), nullable=False),
    PrimaryKeyConstraint("tenant_id", "revocation_id"),
    UniqueConstraint("tenant_id", "tombstone_id", name="tombstone_revocations_tombstone_key"),
    ForeignKeyConstraint(["tenant_id", "tombstone_id"], ["tombstones.tenant_id", "tombstones.tombstone_id"]),
    info={"rls": Rule.CUSTODY, "grants": "SELECT"},
)

erasure_receipts = Table(
    "erasure_receipts",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("receipt_id", Uuid(as_uuid=False), nullable=False),
    Column("project_id", Text, nullable=False),
    Column("tombstone_id", Uuid(as_uuid=False), nullable=False),
    Column("signed", Text, nullable=False, comment="the receipt, as the very text that was signed"),
    Column("signature", LargeBinary, nullable=False),
    Column("public_key", LargeBinary, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    PrimaryKeyConstraint("tenant_id", "receipt_id"),
    UniqueConstraint("tenant_id", "tombstone_id", name="erasure_receipts_tombstone_key"),
    ForeignKeyConstraint(["tenant_id", "tombstone_id"], ["tombstones.tenant_id", "tombstones.tombstone_id"]),
    info={"rls": Rule.CUSTODY, "grants": "SELECT"},
)

# The erasures of end users, whose ids are stored nowhere.
user_erasures = Table(
    "user_erasures",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("erasure_id", Uuid(as_uuid=False), nullable=False),
    Column("project_id", Text, nullable=False),
    Column(
        "user_hash",
        LargeBinary,
        nullable=False,
        comment="SHA-256 of tenant, project and the user's id, which is stored nowhere",
    ),
    Column("key_id", Text, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("erased_at", DateTime(timezone=True), nullable=True),
    Column("signed", Text, nullable=True, comment="the receipt, as the very text that was signed"),
    Column("signature", LargeBinary, nullable=True),
    Column("public_key", LargeBinary, nullable=True),
    PrimaryKeyConstraint("tenant_id", "erasure_id"),
    Index("user_erasures_user_idx", "tenant_id", "project_id", "user_hash", "created_at"),
    info={"rls": Rule.CUSTODY, "grants": "SELECT"},
)
