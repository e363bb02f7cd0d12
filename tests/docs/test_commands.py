"""The curl commands of the pages are run one after the other, each page in a tenant of its own."""

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from app.docs.rendering import PAGES, source
from tests.conftest import PLATFORM_KEY, Tenancy, TestDatabase
from tests.service import RunningService, start_service

BLOCK = re.compile(r"^```sh\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
# These need the internet, a file, a worker with a port or a language model of the reader's own.
NOT_HERE = ("https://example.com/", "manual.pdf", "wait=extraction", "JOB_ID", ":8001/")
# How an answer fills in the words in capitals of later commands.
FOUND = {
    "NOTE_ID": ("note", "note_id"),
    "DOCUMENT_ID": ("document", "document_id"),
    "FACT_ID": ("fact", "fact_id"),
    "CREATED_AT": ("fact", "created_at"),
    "PREDICATE_ID": ("fact", "predicate", "predicate_id"),
    "TOMBSTONE_ID": ("tombstone", "tombstone_id"),
    "GARDEN_ID": ("garden", "garden_id"),
    "OBJECT_ID": ("objects", 0, "object", "canonical_id"),
}


def commands(page: str) -> list[str]:
    """Return the curl commands of a page; a command goes on in lines that are indented."""
    found: list[str] = []
    for block in BLOCK.findall(source(page)):
        for line in block.splitlines():
            if line.startswith("curl "):
                found.append(line)
            elif found and line.startswith("  "):
                found[-1] += f"\n{line}"
    return [command for command in found if not any(word in command for word in NOT_HERE)]


@pytest.fixture(scope="module")
def service(database: TestDatabase) -> Iterator[RunningService]:
    with start_service(database.url("app"), "--demo", PLATFORM_KEY=PLATFORM_KEY) as running:
        yield running


@pytest.fixture
def environment(service: RunningService, tenancy: Tenancy, request: pytest.FixtureRequest) -> dict[str, str]:
    tenant = tenancy.tenant(f"page-{request.node.callspec.params['page']}")
    keys = {"AGENT": tenancy.key(tenant), "ADMIN": tenancy.key(tenant, kind="admin")}
    made = {**os.environ, "URL": service.url, **keys}
    # Some pages speak of somebody who is known already.
    post("entities", {"canonical": "Alice"}, made)
    return made


def post(path: str, body: dict[str, Any], environment: dict[str, str]) -> Any:
    command = f"curl -s $URL/v1/{path} -H \"Authorization: Bearer $AGENT\" -d '{json.dumps(body)}'"
    return run(command, environment)


def run(command: str, environment: dict[str, str]) -> Any:
    command = command.replace("curl -s", "curl -sS --fail-with-body", 1)
    deadline = time.monotonic() + 60
    while True:
        done = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True, check=False)
        # A receipt is there once the worker has erased.
        if done.returncode == 0 or "/receipt" not in command or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    if "/export" in command:
        return [json.loads(line) for line in done.stdout.splitlines()]
    return json.loads(done.stdout) if done.stdout.strip() else {}


def pick(answer: Any, path: tuple[str | int, ...]) -> str | None:
    for step in path:
        try:
            answer = answer[step]
        except (KeyError, IndexError, TypeError):
            return None
    return str(answer)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)])
def test_commands_of_a_page_work(page: str, environment: dict[str, str]) -> None:
    known: dict[str, str] = {}
    for command in commands(page):
        for word in set(re.findall(r"\b[A-Z]+_(?:ID|AT)\b", command)):
            known[word] = known.get(word) or assumed(word, environment)
            command = re.sub(rf"\b{word}\b", known[word], command)
        answer = run(command, environment)
        for word, path in FOUND.items():
            value = pick(answer, path)
            # Of facts and notes the first, of everything else the latest.
            if value is not None and (word not in {"NOTE_ID", "FACT_ID", "CREATED_AT"} or word not in known):
                known[word] = value


def assumed(word: str, environment: dict[str, str]) -> str:
    """Return the id of something that a page takes for granted."""
    bodies: dict[str, tuple[str, dict[str, Any]]] = {
        "NOTE_ID": ("notes", {"content": "Something that was said."}),
        "GARDEN_ID": ("gardens", {"slug": "allotment", "name": "Allotment", "scope": "project_shared"}),
        "PREDICATE_ID": ("facts", {"subject": "Tom", "predicate": "knows", "object": {"entity": "Mara"}}),
    }
    return str(pick(post(*bodies[word], environment), FOUND[word])) if word in bodies else word
