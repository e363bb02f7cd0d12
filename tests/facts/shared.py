"""Short ways to write and read facts, for the tests."""

from typing import Any
from uuid import uuid4

import httpx


def new(word: str = "thing") -> str:
    """A name nobody has used."""
    return f"{word} {uuid4().hex[:12]}"


def note(client: httpx.Client, **fields: Any) -> str:
    answer = client.post("/v1/notes", json={"content": new("a note"), **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()["note"]["note_id"]


def predicate(client: httpx.Client, **fields: Any) -> dict[str, Any]:
    answer = client.post("/v1/predicates", json={"name": new("predicate"), **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()["predicate"]


def entity(client: httpx.Client, canonical: str | None = None, **fields: Any) -> dict[str, Any]:
    answer = client.post("/v1/entities", json={"canonical": canonical or new("entity"), **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()["entity"]


def body(subject: Any, name: str, target: Any, **fields: Any) -> dict[str, Any]:
    """A fact to write; an object that is no dict is a value."""
    return {
        "subject": subject,
        "predicate": name,
        "object": target if isinstance(target, dict) else {"value": target},
        **fields,
    }


def write(client: httpx.Client, subject: Any, name: str, target: Any, **fields: Any) -> dict[str, Any]:
    """The whole answer to a fact that is taken."""
    answer = client.post("/v1/facts", json=body(subject, name, target, **fields))
    assert answer.status_code in (200, 201), answer.text
    assert (answer.json()["outcome"] == "created") == (answer.status_code == 201)
    return answer.json()


def fact(client: httpx.Client, subject: Any, name: str, target: Any, **fields: Any) -> dict[str, Any]:
    return write(client, subject, name, target, **fields)["fact"]


def listed(client: httpx.Client, **params: Any) -> list[dict[str, Any]]:
    answer = client.get("/v1/facts", params={"limit": 200, **params})
    assert answer.status_code == 200, answer.text
    return answer.json()["facts"]


def ids(facts: list[dict[str, Any]]) -> list[str]:
    return [item["fact_id"] for item in facts]


def read(client: httpx.Client, fact_id: str, **params: Any) -> dict[str, Any]:
    answer = client.get(f"/v1/facts/{fact_id}", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def history(client: httpx.Client, fact_id: str) -> dict[str, Any]:
    answer = client.get(f"/v1/facts/{fact_id}/history")
    assert answer.status_code == 200, answer.text
    return answer.json()


def error(answer: httpx.Response) -> tuple[int, str]:
    """Status and code of a refusal, in a well-formed envelope."""
    assert set(answer.json()) == {"error"}, answer.text
    assert set(answer.json()["error"]) == {"code", "message", "request_id", "details"}
    return answer.status_code, answer.json()["error"]["code"]


def spans(facts: list[dict[str, Any]]) -> list[tuple[str, str | None]]:
    """From when to when, the earliest first."""
    return sorted(((item["valid_from"], item["valid_to"]) for item in facts), key=lambda span: span[0])


def year(number: int) -> str:
    return f"{number}-01-01T00:00:00Z"
