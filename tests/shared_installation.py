"""One database and its services, used by the test modules of a process one after the other.

A start costs more than most modules' tests. Each module finds the database as empty as a new one; what else a module
changed (the schema, configuration, caches of a service) makes the next one start with a new installation.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg

from tests.service import RunningService, start_service

if TYPE_CHECKING:
    from tests.conftest import TestDatabase

EMPTY = """
    DO $$
    DECLARE
        filled text;
    BEGIN
        SELECT string_agg(oid::regclass::text, ', ') INTO filled FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND pg_relation_size(oid) > 0
            AND relname NOT IN ('alembic_version', 'embedding_models', 'installed_releases', 'service_secrets',
                                'signing_keys');
        IF filled IS NOT NULL THEN
            -- The audit log refuses it otherwise.
            SET LOCAL session_replication_role = replica;
            EXECUTE 'TRUNCATE ' || filled || ' RESTART IDENTITY CASCADE';
        END IF;
        -- Autovacuum may have analysed what is gone; plans would follow it. After the tables are locked, since ANALYZE
        -- locks the table first, too.
        DELETE FROM pg_statistic USING pg_class
        WHERE pg_class.oid = starelid AND relnamespace = 'public'::regnamespace;
    END $$"""

# What stays when the tables are emptied, and what services cache.
STATE = """
    SELECT md5(concat_ws('/',
        (SELECT string_agg(concat_ws(' ', oid, relname, relkind, relacl, reloptions, relrowsecurity,
             relforcerowsecurity, relowner), ',' ORDER BY oid)
         FROM pg_class WHERE relnamespace = 'public'::regnamespace),
        (SELECT string_agg(concat_ws(' ', attrelid, attnum, attname, atttypid, attnotnull, attacl), ','
             ORDER BY attrelid, attnum)
         FROM pg_attribute JOIN pg_class c ON c.oid = attrelid WHERE c.relnamespace = 'public'::regnamespace),
        (SELECT string_agg(concat_ws(' ', oid, xmin), ',' ORDER BY oid) FROM pg_proc
         WHERE pronamespace = 'public'::regnamespace),
        (SELECT string_agg(concat_ws(' ', oid, xmin), ',' ORDER BY oid) FROM pg_policy),
        (SELECT string_agg(concat_ws(' ', oid, tgenabled), ',' ORDER BY oid) FROM pg_trigger),
        (SELECT string_agg(concat_ws(' ', oid, convalidated), ',' ORDER BY oid) FROM pg_constraint),
        (SELECT string_agg(concat_ws(' ', oid, xmin), ',' ORDER BY oid) FROM pg_attrdef),
        (SELECT string_agg(concat_ws(' ', oid, typowner, typacl), ',' ORDER BY oid) FROM pg_type),
        (SELECT string_agg(concat_ws(' ', oid, xmin), ',' ORDER BY oid) FROM pg_default_acl),
        (SELECT string_agg(concat_ws(' ', oid, extversion), ',' ORDER BY oid) FROM pg_extension),
        (SELECT string_agg(concat_ws(' ', oid, xmin), ',' ORDER BY oid) FROM pg_namespace WHERE nspname !~ '^pg_'),
        (SELECT string_agg(concat_ws(' ', setrole, setconfig), ',' ORDER BY setrole) FROM pg_db_role_setting
         WHERE setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())),
        (SELECT concat_ws(' ', datconnlimit, datacl) FROM pg_database WHERE datname = current_database()),
        -- Services remember for a minute how far a source is trusted.
        (SELECT count(*) FROM sources),
        (SELECT string_agg(t::text, ',' ORDER BY t::text) FROM alembic_version t),
        (SELECT string_agg(t::text, ',' ORDER BY t::text) FROM embedding_models t),
        (SELECT string_agg(t::text, ',' ORDER BY t::text) FROM installed_releases t),
        (SELECT string_agg(t::text, ',' ORDER BY t::text) FROM service_secrets t),
        (SELECT string_agg(t::text, ',' ORDER BY t::text) FROM signing_keys t)))"""


class SharedInstallation:
    """A database, made on first use, and services on it by their settings."""

    def __init__(self, new_database: "Callable[[], AbstractContextManager[TestDatabase]]") -> None:
        self._new_database = new_database
        self._parts = ExitStack()
        self._database: TestDatabase | None = None
        self._state = ""
        self._services: dict[frozenset[tuple[str, str]], RunningService] = {}

    def database(self) -> "TestDatabase":
        """Return the database, as empty as a new one."""
        if self._database is not None and not self._can_be_used_again(self._database):
            self.close()
        if self._database is None:
            self._database = self._parts.enter_context(self._new_database())
            self._state = _state(self._database)
        else:
            _empty(self._database)
        return self._database

    def service(self, **variables: str) -> RunningService:
        """Return a service on the database, whose output begins now."""
        assert self._database is not None
        settings = frozenset(variables.items())
        if settings not in self._services:
            started = start_service(self._database.url("app"), **variables)
            self._services[settings] = self._parts.enter_context(started)
        running = self._services[settings]
        return replace(running, said_before=len(running.output()))

    def close(self) -> None:
        """Stop the services and drop the database."""
        self._database = None
        self._services.clear()
        self._parts.close()

    def _can_be_used_again(self, database: "TestDatabase") -> bool:
        return all(service.process.poll() is None for service in self._services.values()) and (
            _state(database) == self._state
        )


def _empty(database: "TestDatabase") -> None:
    """Delete all rows; autovacuum may hold a table that is not among those to be locked."""
    for attempt in range(10):
        try:
            with psycopg.connect(database.superuser) as connection:
                connection.execute(EMPTY)
            return
        except psycopg.errors.DeadlockDetected:
            if attempt == 9:
                raise


def _state(database: "TestDatabase") -> str:
    with psycopg.connect(database.superuser) as connection:
        row = connection.execute(STATE).fetchone()
    assert row is not None
    return row[0]
