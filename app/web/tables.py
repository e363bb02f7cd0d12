"""Tables of the web layer: stored responses, rate windows, and secrets of the service."""

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    Uuid,
)

from app.db.metadata import metadata
from app.db.rls import Rule

idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("key_id", Uuid(as_uuid=False), nullable=False),
    Column("method", Text, nullable=False),
    Column("path", Text, nullable=False),
    Column("idempotency_key", Text, nullable=False),
    Column("request_hash", LargeBinary, nullable=False),
    Column("status", SmallInteger, nullable=True, comment="NULL only inside the transaction of the effect"),
    Column("body", LargeBinary, nullable=True),
    Column("sealed", Boolean, nullable=False, comment="the body is encrypted with the caller's secret"),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("expires_at", DateTime(timezone=True), nullable=False),
    # No foreign key to api_keys, which does not contain the platform key.
    PrimaryKeyConstraint("tenant_id", "key_id", "method", "path", "idempotency_key"),
    CheckConstraint("char_length(idempotency_key) <= 255", name="idempotency_key"),
    Index("idempotency_keys_expiry_idx", "tenant_id", "expires_at"),
    info={"rls": Rule.TENANT, "grants": "SELECT, INSERT, UPDATE, DELETE"},
)

rate_windows = Table(
    "rate_windows",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("key_id", Uuid(as_uuid=False), nullable=False),
    Column("work", Text, nullable=False),
    Column("slots", ARRAY(BigInteger), nullable=False),
    Column("counts", ARRAY(Integer), nullable=False),
    PrimaryKeyConstraint("tenant_id", "key_id", "work"),
    ForeignKeyConstraint(["tenant_id", "key_id"], ["api_keys.tenant_id", "api_keys.key_id"]),
    info={"rls": Rule.TENANT, "grants": "SELECT, INSERT, UPDATE, DELETE"},
)

service_secrets = Table(
    "service_secrets",
    metadata,
    Column("name", Text, nullable=False),
    Column("secret", LargeBinary, nullable=False),
    PrimaryKeyConstraint("name"),
    info={"grants": "SELECT"},
)

signing_keys = Table(
    "signing_keys",
    metadata,
    Column("purpose", Text, nullable=False, comment="what the key signs: receipts"),
    Column("seed", LargeBinary, nullable=False, comment="of an Ed25519 key; only functions of the owner read it"),
    Column("public_key", LargeBinary, nullable=False),
    PrimaryKeyConstraint("purpose"),
    CheckConstraint("octet_length(seed) = 32 AND octet_length(public_key) = 32", name="length"),
    info={"grants": "SELECT (purpose), SELECT (public_key)"},
)
