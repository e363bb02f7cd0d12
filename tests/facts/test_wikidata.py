"""Real temporal facts through the batch endpoint: open and past values are those of the file."""

import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.conftest import Tenancy
from tests.service import ROOT, RunningService

FILE = Path(os.environ.get("PALIMPSEST_EVAL_DATA", ROOT.parent / "shared" / "eval")) / "wikidata12k" / "facts.tsv"
YEARS = (1492, 1789, 1850, 1900, 1923, 1945, 1968, 1989, 2001, 2010)

Line = tuple[str, str, str, int, int | None]


@pytest.fixture(scope="module")
def lines() -> list[Line]:
    if not FILE.exists():
        pytest.skip(f"{FILE} is not there; set PALIMPSEST_EVAL_DATA to the folder that holds wikidata12k")
    found: list[Line] = []
    for text in FILE.read_text().splitlines()[1:]:
        subject, relation, target, first, last = text.split("\t")
        line = (subject, relation, target, 1 if first == "None" else int(first), None if last == "None" else int(last))
        # A few say they ended before they began.
        if line[4] is None or line[4] >= line[3]:
            found.append(line)
    return found


@pytest.fixture(scope="module")
def loaded(lines: list[Line], tenancy: Tenancy, service: RunningService) -> Iterator[httpx.Client]:
    tenancy.tenant("wikidata")
    key = tenancy.key("wikidata", agent_id="loader", rate_limits={"write": 0, "read": 0})
    headers = {"Authorization": f"Bearer {key}"}
    with httpx.Client(base_url=service.url, headers=headers, timeout=60, verify=False) as client:
        load(client, lines)
        yield client


def load(client: httpx.Client, lines: list[Line]) -> None:
    for start in range(0, len(lines), 1000):
        facts = [
            {
                "subject": subject,
                "predicate": relation,
                "object": {"entity": target},
                "valid_from": f"{first:04d}-01-01T00:00:00Z",
                "valid_to": None if last is None else f"{last + 1:04d}-01-01T00:00:00Z",
            }
            for subject, relation, target, first, last in lines[start : start + 1000]
        ]
        answer = client.post("/v1/facts/batch", json={"facts": facts})
        assert answer.status_code == 200, answer.text


def collect(client: httpx.Client, **params: str | int) -> list[tuple[str, str, str, str | None]]:
    """All facts of a query, page by page."""
    found: list[tuple[str, str, str, str | None]] = []
    cursor: str | None = None
    while True:
        page = client.get("/v1/facts", params={"limit": 200, **params, **({"cursor": cursor} if cursor else {})}).json()
        for fact in page["facts"]:
            triple = (fact["subject"]["canonical"], fact["predicate"]["name"], fact["object"]["entity"]["canonical"])
            found.append((*triple, fact["valid_to"]))
        cursor = page["next_cursor"]
        if cursor is None:
            return found


@pytest.mark.slow
def test_open_facts_are_those_without_an_end_in_the_file(loaded: httpx.Client, lines: list[Line]) -> None:
    open_in_file = {line[:3] for line in lines if line[4] is None}
    answered = [fact[:3] for fact in collect(loaded) if fact[3] is None]
    assert (len(answered), set(answered)) == (len(open_in_file), open_in_file)


@pytest.mark.slow
def test_facts_valid_in_ten_years_are_those_of_the_file(loaded: httpx.Client, lines: list[Line]) -> None:
    for year in YEARS:
        in_file = {line[:3] for line in lines if line[3] <= year and (line[4] is None or line[4] >= year)}
        answered = [fact[:3] for fact in collect(loaded, valid_at=f"{year}-07-01T00:00:00Z")]
        assert (len(answered), set(answered)) == (len(in_file), in_file), year
