"""Which releases were installed in this database, newest last: what old and new processes compare themselves with."""

from alembic import op
from app.db.functions import remove_functions
from app.db.rls import APP_ROLE

revision = "0002_installed_releases"
down_revision = "0001_baseline"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
CREATE TABLE installed_releases (
    installation integer NOT NULL,
    release text NOT NULL,
    compatibility_level integer NOT NULL,
    functions_hash text NOT NULL,
    catalogue_hash text NOT NULL,
    installed_at timestamptz NOT NULL,
    CONSTRAINT installed_releases_pkey PRIMARY KEY (installation)
)""")
    op.execute("COMMENT ON COLUMN installed_releases.functions_hash IS 'of the files; empty until they are installed'")
    op.execute("COMMENT ON COLUMN installed_releases.catalogue_hash IS 'of the functions as the catalogue shows them'")
    op.execute(f"GRANT SELECT ON installed_releases TO {APP_ROLE}")


def downgrade() -> None:
    remove_functions(op.get_bind())
    op.execute("DROP TABLE installed_releases")
