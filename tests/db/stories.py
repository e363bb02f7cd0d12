"""Databases and releases of other times: a dump of the last pre-release, and a release after this one."""

import gzip
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from app.db import functions, migrations, privileges, releases
from app.db.releases import COMPATIBILITY_LEVEL
from tests.service import ROOT

DUMP = Path(__file__).parent / "fixtures" / "pre_release_0012.sql.gz"

NEXT_REVISION = '''
"""A table that the release before does not know."""

from alembic import op
from app.db.functions import remove_functions
from app.db.rls import Rule, enable_tenant_rls

revision = "0099_next"
down_revision = "{down_revision}"
branch_labels = None
depends_on = None

{declaration}


def upgrade() -> None:
    op.execute("CREATE TABLE seeds (tenant_id text NOT NULL, project_id text NOT NULL, name text)")
    enable_tenant_rls(op.execute, "seeds", rule=Rule.PROJECT, grants="SELECT, INSERT")


def downgrade() -> None:
    remove_functions(op.get_bind())
    op.execute("DROP TABLE seeds")
'''

NEXT_FUNCTION = """-- Counts seeds.
CREATE OR REPLACE FUNCTION count_seeds(p_tenant text)
RETURNS SETOF seeds
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
BEGIN
    RETURN QUERY SELECT s.* FROM seeds s WHERE s.tenant_id = p_tenant;
END
$$;
"""


def restore_pre_release(conninfo: str) -> None:
    """Fill an empty database with the dump of commit 8340b5c: schema 0012, a note, two facts."""
    migrations.ensure_roles(conninfo)
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(gzip.decompress(DUMP.read_bytes()))


def describe_functions(conninfo: str) -> list[tuple[object, ...]]:
    """Every function of ours as the catalogue shows it, with who may call it."""
    with psycopg.connect(conninfo) as connection:
        return connection.execute(
            "SELECT p.oid::regprocedure::text, pg_get_functiondef(p.oid), p.proowner::regrole::text, "
            "ARRAY(SELECT a.grantee::regrole::text FROM aclexplode(p.proacl) a ORDER BY 1) FROM pg_proc p "
            "WHERE p.pronamespace = 'public'::regnamespace AND NOT EXISTS (SELECT FROM pg_depend d "
            "WHERE d.objid = p.oid AND d.deptype = 'e') ORDER BY 1"
        ).fetchall()


@contextmanager
def next_release(folder: Path, *, migration: bool = True, level: int = COMPATIBILITY_LEVEL) -> Iterator[None]:
    """Within the block this process is the next release: another table, one more function and a changed one."""
    down_revision = migrations.head_revision()
    shutil.copytree(ROOT / "alembic", folder / "alembic", dirs_exist_ok=True)
    added = folder / "alembic" / "functions" / "facts" / "count_seeds.sql"
    if migration:
        declaration = f"compatibility_level = {level}" if level > 1 else ""
        revision = NEXT_REVISION.format(down_revision=down_revision, declaration=declaration)
        (folder / "alembic" / "versions" / "0099_next.py").write_text(revision)
        added.write_text(NEXT_FUNCTION)
    changed = folder / "alembic" / "functions" / "jobs" / "queue_metrics.sql"
    changed.write_text(changed.read_text().replace("AS $$", "AS $$\n-- As the next release has it.", 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrations, "_ROOT", folder)
        patch.setattr(releases, "COMPATIBILITY_LEVEL", level)
        _forget()
        try:
            yield
        finally:
            patch.undo()
            _forget()


def _forget() -> None:
    for cached in (
        migrations.known_revisions,
        functions.function_files,
        functions.owner_functions,
        functions.schema_functions,
        functions.all_functions,
        functions.functions_hash,
        privileges.wanted_functions,
    ):
        cached.cache_clear()
