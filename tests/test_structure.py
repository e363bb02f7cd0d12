"""Rules of the code's structure that import contracts cannot express by wildcard."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from app.db.catalogue import tenant_rules
from app.db.schema import load_metadata
from tests.service import ROOT

# Not domains: they compose the service, or are used by every domain.
COMPOSING = {"main", "cli", "db"}
# The retrieval engine is shared: recall adds its own SQL to the engine's.
SHARED = {("recall", "retrieval")}


def imported_modules(path: Path) -> Iterator[str]:
    """Yield the modules that a file imports, also names imported from packages."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_no_domain_imports_the_sql_of_another() -> None:
    found: list[str] = []
    for path in sorted((ROOT / "app").rglob("*.py")):
        parts = path.relative_to(ROOT).parts
        if parts[1] in COMPOSING or len(parts) == 2 or parts[1] == "_alembic":
            continue
        for name in imported_modules(path):
            names = name.split(".")
            sql = names[0] == "app" and names[-1] in ("queries", "tables")
            if sql and names[1] not in (parts[1], "db") and (parts[1], names[1]) not in SHARED:
                found.append(f"{'/'.join(parts)} imports {name}")
    assert not found


def test_statements_are_written_in_queries_and_tables_only() -> None:
    found = [
        path.relative_to(ROOT).as_posix()
        for path in sorted((ROOT / "app").rglob("*.py"))
        if path.name not in ("queries.py", "tables.py")
        and path.relative_to(ROOT).parts[1] not in ("db", "_alembic")
        and any(
            name in ("sqlalchemy.text", "sqlalchemy.select", "sqlalchemy.insert") for name in imported_modules(path)
        )
    ]
    assert not found


def test_no_function_forgets_whose_row_it_inserts() -> None:
    """A row without a user would be common to all users."""
    tables = {name for name, rule in tenant_rules(load_metadata()).items() if rule.name.startswith("USER_")} - {"jobs"}
    found = [
        f"{path.stem} inserts into {inserted[1]}"
        for path in sorted((ROOT / "alembic" / "functions").rglob("*.sql"))
        for inserted in re.finditer(r"INSERT INTO (\w+)(?: AS \w+)? \(([^)]*)\)", path.read_text())
        if inserted[1] in tables and "user_id" not in inserted[2]
    ]
    assert not found
