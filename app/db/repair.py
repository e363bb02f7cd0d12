"""Repair: puts policies and grants back to what this version needs, in one transaction, as the owner.

Functions need no repair: every `palimpsest migrate` compares and installs them.
"""

import psycopg
from sqlalchemy import MetaData

from app.db.catalogue import OTHER_GRANTS, tenant_rules
from app.db.migrations import LOCK_TIMEOUT
from app.db.rls import APP_ROLE, OWNER_ROLE, enable_tenant_rls
from app.errors import StartupError

POLICIES_OF = "SELECT quote_ident(policyname) FROM pg_policies WHERE schemaname = 'public' AND tablename = %s"


def repair(conninfo: str, metadata: MetaData) -> None:
    """Restore what drifted on our own tables; what is not ours is left for a person to judge."""
    with psycopg.connect(conninfo) as connection:

        def run(statement: str) -> None:
            connection.execute(statement.encode())

        try:
            run(f"SET ROLE {OWNER_ROLE}")
            run(f"SET lock_timeout = '{LOCK_TIMEOUT}'")
            rules = tenant_rules(metadata)
            for table, rule in rules.items():
                for (policy,) in connection.execute(POLICIES_OF, (table,)).fetchall():
                    run(f"DROP POLICY {policy} ON {table}")
                run(f"REVOKE ALL ON {table} FROM PUBLIC, {APP_ROLE}")
                enable_tenant_rls(run, table, rule=rule, grants=metadata.tables[table].info["grants"])
            others = {table.name: table.info["grants"] for table in metadata.sorted_tables if table.name not in rules}
            for table, grants in {**OTHER_GRANTS, **others}.items():
                run(f"REVOKE ALL ON {table} FROM PUBLIC, {APP_ROLE}")
                if grants:
                    run(f"GRANT {grants} ON {table} TO {APP_ROLE}")
        except psycopg.Error as problem:
            reason = str(problem).strip().splitlines()[0]
            raise StartupError(f"Nothing was repaired: {reason}. Undo that by hand, then repair again.") from problem
