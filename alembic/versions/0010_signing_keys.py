"""A table of its own for the key that signs receipts: the service reads its public part, its functions the seed."""

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import text

from alembic import op
from app.db.functions import remove_functions
from app.db.rls import APP_ROLE

revision = "0010_signing_keys"
down_revision = "0009_conflict_space"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
CREATE TABLE signing_keys (
    purpose text NOT NULL,
    seed bytea NOT NULL,
    public_key bytea NOT NULL,
    CONSTRAINT signing_keys_pkey PRIMARY KEY (purpose),
    CONSTRAINT signing_keys_length_check CHECK (octet_length(seed) = 32 AND octet_length(public_key) = 32)
)""")
    op.execute("COMMENT ON COLUMN signing_keys.purpose IS 'what the key signs: receipts'")
    op.execute("COMMENT ON COLUMN signing_keys.seed IS 'of an Ed25519 key; only functions of the owner read it'")
    op.execute(f"GRANT SELECT (purpose), SELECT (public_key) ON signing_keys TO {APP_ROLE}")
    connection = op.get_bind()
    for row in connection.execute(text("DELETE FROM service_secrets WHERE name = 'signing' RETURNING secret")).all():
        public_key = Ed25519PrivateKey.from_private_bytes(bytes(row.secret)).public_key().public_bytes_raw()
        connection.execute(
            text("INSERT INTO signing_keys (purpose, seed, public_key) VALUES ('receipts', :seed, :public_key)"),
            {"seed": row.secret, "public_key": public_key},
        )


def downgrade() -> None:
    remove_functions(op.get_bind())
    op.execute("INSERT INTO service_secrets (name, secret) SELECT 'signing', seed FROM signing_keys")
    op.execute("DROP TABLE signing_keys")
