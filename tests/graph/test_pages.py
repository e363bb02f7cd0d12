"""Pages of a walk: opaque, stable while the graph changes, good for five minutes (RECALL 20.1.6)."""

import base64
from collections.abc import Callable
from typing import Any

import httpx
import msgspec
import pytest

from app.access import Principal
from app.graph.service import NeighborQuery
from app.paging import CURSOR_TTL_SECONDS, CursorSigner, Page
from tests.conftest import Tenancy
from tests.erasure.shared import tombstone
from tests.facts.shared import error
from tests.graph.shared import Graph, Superuser, moment, pages, reached, walk

PATH = "/v1/graph/neighbors"


@pytest.fixture
def graph(robin: httpx.Client) -> Graph:
    """Twelve near, twelve behind them, and a chain."""
    made = Graph(robin)
    made.draw(*(f"a to b{number}" for number in range(12)))
    made.draw(*(f"b{number} to c{number}" for number in range(12)))
    made.draw("c0 to d0", "d0 to e0")
    return made


@pytest.mark.parametrize("size", [1, 2, 7, 12, 24, 25, 200])
def test_pages_are_the_whole_in_order(graph: Graph, robin: httpx.Client, size: int) -> None:
    whole = walk(robin, entity=graph.name("a"), depth=3)
    assert whole["total_hint"] == 25
    found = pages(robin, entity=graph.name("a"), depth=3, page_size=size)
    assert [item for page in found for item in page] == whole["neighbors"]
    assert [len(page) for page in found[:-1]] == [size] * (len(found) - 1)
    assert found[-1], "no page is empty"


def test_20_1_6_a_next_cursor_is_there_only_when_more_pages_are(graph: Graph, robin: httpx.Client) -> None:
    exact = walk(robin, entity=graph.name("a"), page_size=12)
    assert (len(exact["neighbors"]), exact["next_cursor"]) == (12, None)
    assert walk(robin, entity=graph.name("a"), page_size=11)["next_cursor"] is not None


def test_limit_is_another_word_for_page_size(graph: Graph, robin: httpx.Client) -> None:
    answer = robin.get(PATH, params={"entity": graph.name("a"), "limit": 3}).json()
    assert len(answer["neighbors"]) == 3


def test_20_1_6_a_cursor_is_opaque_base64url(graph: Graph, robin: httpx.Client) -> None:
    cursor = walk(robin, entity=graph.name("a"), page_size=3)["next_cursor"]
    assert base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    assert set(cursor) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


@pytest.mark.parametrize("size", [1, 3, 5])
def test_20_1_6_pages_stay_while_the_graph_changes(graph: Graph, robin: httpx.Client, size: int) -> None:
    """Neighbours that were there when the cursor was issued are neither skipped nor repeated."""
    before = walk(robin, entity=graph.name("a"), depth=3)["neighbors"]
    page = walk(robin, entity=graph.name("a"), depth=3, page_size=size)
    found: list[dict[str, Any]] = page["neighbors"]
    changes: list[Callable[[], object]] = [
        lambda: graph.draw("a to new0", "a to new1", "new1 to new2"),
        # A shorter way to what is still to come, which would move it to a page that was already read.
        lambda: graph.draw("a to c11", "a to d0", "a to e0"),
        # A surer edge on the way.
        lambda: graph.draw("b3 likes c10", confidence=1.0),
        # Ways that end.
        lambda: graph.retract("a to b11"),
        lambda: graph.retract("b5 to c5"),
        lambda: graph.client.patch(
            f"/v1/facts/{graph.facts['b7', 'to', 'c7']['fact_id']}", json={"valid_to": "2020-01-01T00:00:00Z"}
        ),
        # Confidence that falls.
        lambda: graph.draw("a to b9", confidence=0.001),
    ]
    while page["next_cursor"] is not None:
        if changes:
            changes.pop(0)()
        page = walk(robin, entity=graph.name("a"), depth=3, page_size=size, cursor=page["next_cursor"])
        assert page["total_hint"] == len(before)
        found += page["neighbors"]
    assert found == before, "with the paths and confidences of then"


def test_20_1_6_pages_at_a_past_time_stay_too(graph: Graph, robin: httpx.Client, superuser: Superuser) -> None:
    then = moment(superuser)
    graph.draw("a to late")
    before = walk(robin, entity=graph.name("a"), depth=2, as_of=then)["neighbors"]
    assert len(before) == 24
    page = walk(robin, entity=graph.name("a"), depth=2, as_of=then, page_size=5)
    found = page["neighbors"]
    number = 0
    while page["next_cursor"] is not None:
        number += 1
        graph.draw(f"a to later{number}", f"a to c{number}")
        page = walk(robin, entity=graph.name("a"), depth=2, as_of=then, page_size=5, cursor=page["next_cursor"])
        found += page["neighbors"]
    assert found == before


def test_pages_need_no_scope_for_the_past(graph: Graph, tenancy: Tenancy, as_key: Callable[..., httpx.Client]) -> None:
    present = as_key(tenancy.key("acme", agent_id="robin", scopes=["graph:read"]))
    found = pages(present, entity=graph.name("a"), depth=2, page_size=10)
    assert [len(page) for page in found] == [10, 10, 4]


def test_pages_do_not_mind_a_floor_that_rises(graph: Graph, robin: httpx.Client, superuser: Superuser) -> None:
    first = walk(robin, entity=graph.name("a"), page_size=10)
    project = "tenant_id = 'acme' AND project_id = 'default'"
    superuser.execute(
        f"UPDATE projects SET settings = settings || jsonb_build_object('as_of_floor', %s::text) WHERE {project}",
        (moment(superuser),),
    )
    try:
        rest = walk(robin, entity=graph.name("a"), page_size=10, cursor=first["next_cursor"])
    finally:
        superuser.execute(f"UPDATE projects SET settings = settings - 'as_of_floor' WHERE {project}")
    assert len(rest["neighbors"]) == 2


def test_what_is_forgotten_between_pages_is_gone(graph: Graph, robin: httpx.Client, admin: httpx.Client) -> None:
    first = walk(robin, entity=graph.name("a"), depth=1, page_size=6)
    whole = walk(robin, entity=graph.name("a"), depth=1)["neighbors"]
    tombstone(admin, whole[-1]["entity"]["canonical"])
    rest = walk(robin, entity=graph.name("a"), depth=1, page_size=6, cursor=first["next_cursor"])
    assert reached(rest["neighbors"]) == reached(whole[6:-1])


def test_a_cursor_serves_its_own_question_and_caller_alone(
    graph: Graph, robin: httpx.Client, wren: httpx.Client
) -> None:
    asked = {"entity": graph.name("a"), "depth": 2, "page_size": 5}
    cursor = walk(robin, **asked)["next_cursor"]
    others: list[dict[str, Any]] = [
        {"entity": graph.name("b1")}, {"depth": 3}, {"direction": "out"}, {"scope": "public"}, {"min_trust": 0.1},
        {"min_confidence": 0.3}, {"relation_filter": "x*"}, {"valid_at": "2020-01-01T00:00:00Z"},
    ]  # fmt: skip
    for other in others:
        answer = robin.get(PATH, params={**asked, **other, "cursor": cursor})
        assert error(answer) == (400, "cursor_invalid"), other
    assert error(wren.get(PATH, params={**asked, "cursor": cursor})) == (400, "cursor_invalid")
    assert walk(robin, **{**asked, "page_size": 7}, cursor=cursor)["neighbors"], "the size of a page may change"


class PastSigner(CursorSigner):
    """Signs as it would have, five minutes ago."""

    def sign(self, position: list[Any], *, binding: str, now: float | None = None) -> str:
        import time

        return super().sign(position, binding=binding, now=time.time() - CURSOR_TTL_SECONDS - 1)


def test_20_1_6_a_cursor_expires_after_300_seconds(
    graph: Graph, robin: httpx.Client, superuser: Superuser, keys: dict[str, str]
) -> None:
    assert CURSOR_TTL_SECONDS == 300
    row = superuser.execute("SELECT secret FROM service_secrets WHERE name = 'cursor'").fetchone()
    assert row is not None
    query = NeighborQuery(
        entity=graph.name("a"), depth=1, scope="project_shared", direction="both", relation_filter=None,
        min_confidence=0.1, min_trust=0.0,
    )  # fmt: skip
    key_id = robin.get("/v1/whoami").json()["key_id"]
    who = Principal(tenant_id="acme", project_id="default", key_id=key_id, kind="agent")
    position = [1, graph.id("a"), moment(superuser)]
    for kind, status in ((CursorSigner, 200), (PastSigner, 400)):
        filters = {**msgspec.structs.asdict(query), "valid_at": None, "as_of": None}
        page = Page(kind(bytes(row["secret"])), who, "neighbors", limit=1, cursor=None, **filters)
        _, cursor = page.cut([{}, {}], key=lambda _: position)
        answer = robin.get(PATH, params={"entity": graph.name("a"), "cursor": cursor})
        assert answer.status_code == status, answer.text
    assert error(answer) == (400, "cursor_expired")
