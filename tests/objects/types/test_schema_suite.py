"""The required part of the public JSON Schema test suite, draft 2020-12."""

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from app.objects.types.validation import compile_schema
from tests.eval.data import FOLDER

SUITE = FOLDER / "json-schema"
FILES = sorted((SUITE / "draft2020-12").glob("*.json"))
pytestmark = pytest.mark.skipif(
    not FILES, reason="the public test suite is not beside the project, in ../shared/eval/json-schema"
)


@pytest.fixture(scope="module")
def resources() -> Any:
    """Return the external schemas that the suite refers to; nothing is fetched."""
    found: list[tuple[str, Any]] = []
    for path in (SUITE / "remotes").rglob("*.json"):
        name = path.relative_to(SUITE / "remotes").as_posix()
        if not name.startswith("draft") or name.startswith("draft2020-12/"):
            found.append((f"http://localhost:1234/{name}", json.loads(path.read_text())))
    return jsonschema_rs.Registry(found, draft=jsonschema_rs.Draft202012)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_suite_holds(path: Path, resources: Any) -> None:
    wrong: list[str] = []
    for group in json.loads(path.read_text()):
        checker = compile_schema(group["schema"], resources=resources)
        for case in group["tests"]:
            errors = checker.errors(case["data"])
            if (not errors) is not case["valid"]:
                wrong.append(f"{group['description']}: {case['description']}")
    assert wrong == []
