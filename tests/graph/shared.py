"""Short ways to draw graphs and to walk them."""

from datetime import datetime
from typing import Any

import httpx
import psycopg

from tests.facts.shared import new

Superuser = psycopg.Connection[dict[str, Any]]


def moment(superuser: Superuser) -> str:
    """The time, by the clock of the database."""
    row = superuser.execute("SELECT clock_timestamp() AS now").fetchone()
    assert row is not None
    found: datetime = row["now"]
    return found.isoformat()


class Graph:
    """A graph of its own: letters stand for entities, a word for a predicate."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client
        self.mark = new("")
        self.entities: dict[str, str] = {}
        self.predicates: dict[str, str] = {}
        self.facts: dict[tuple[str, str, str], dict[str, Any]] = {}

    def name(self, letter: str) -> str:
        return f"{letter}{self.mark}"

    def relation(self, word: str) -> str:
        return f"{word}{self.mark}"

    def id(self, letter: str) -> str:
        return self.entities[letter]

    def letter(self, entity_id: str) -> str:
        return next(letter for letter, found in self.entities.items() if found == entity_id)

    def draw(self, *edges: str, client: httpx.Client | None = None, **fields: Any) -> list[dict[str, Any]]:
        """Writes edges such as `a knows b`, all with these fields."""
        facts: list[dict[str, Any]] = []
        for edge in edges:
            subject, word, target = edge.split()
            facts.append(
                {
                    "subject": self.name(subject),
                    "predicate": self.relation(word),
                    "object": {"entity": self.name(target)},
                    **fields,
                }
            )
        answer = (client or self.client).post("/v1/facts/batch", json={"facts": facts})
        assert answer.status_code == 200, answer.text
        made = [result["fact"] for result in answer.json()["results"]]
        for edge, fact in zip(edges, made, strict=True):
            subject, word, target = edge.split()
            self.entities[subject] = fact["subject"]["entity_id"]
            self.entities[target] = fact["object"]["entity"]["entity_id"]
            self.predicates[word] = fact["predicate"]["predicate_id"]
            self.facts[subject, word, target] = fact
        return made

    def retract(self, edge: str) -> None:
        subject, word, target = edge.split()
        path = f"/v1/facts/{self.facts[subject, word, target]['fact_id']}/retract"
        assert self.client.post(path, json={}).status_code == 200

    def near(self, letter: str, *, client: httpx.Client | None = None, **params: Any) -> str:
        """Who is near, such as `b1 c1 d2`: letters with their hops, in the order of both."""
        found = walk(client or self.client, entity=self.name(letter), **params)
        shown = sorted((item["hops"], self.letter(item["entity"]["entity_id"])) for item in found["neighbors"])
        return " ".join(f"{reached}{hops}" for hops, reached in shown)

    def path(self, start: str, end: str, **params: Any) -> str:
        """The way to one of them, such as `a -knows-> b <-likes- c`."""
        answer = walk(self.client, entity=self.name(start), **params)
        (found,) = [item for item in answer["neighbors"] if item["entity"]["entity_id"] == self.id(end)]
        shown = start
        for step in found["path"]:
            assert self.letter(step["from"]) == shown[-1]
            word = step["relation"].removesuffix(self.mark)
            shown += f" -{word}-> " if step["direction"] == "out" else f" <-{word}- "
            shown += self.letter(step["to"])
        assert found["hops"] == len(found["path"])
        assert found["relation"] == found["path"][-1]["relation"]
        return shown


def walk(client: httpx.Client, **params: Any) -> dict[str, Any]:
    """The whole answer to a walk, on one page unless asked for otherwise."""
    params.setdefault("page_size", 200)
    answer = client.get(
        "/v1/graph/neighbors", params={name: value for name, value in params.items() if value is not None}
    )
    assert answer.status_code == 200, answer.text
    return answer.json()


def pages(client: httpx.Client, **params: Any) -> list[list[dict[str, Any]]]:
    """All pages of a walk."""
    found = [walk(client, **params)]
    while (cursor := found[-1]["next_cursor"]) is not None:
        found.append(walk(client, **params, cursor=cursor))
    return [page["neighbors"] for page in found]


def reached(items: list[dict[str, Any]]) -> list[str]:
    return [item["entity"]["entity_id"] for item in items]
