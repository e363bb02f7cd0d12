"""Query parameters that a route does not take are refused, on every route, and so are single values given twice."""

import re
from collections.abc import Callable, Iterator

import httpx
import pytest
from litestar.routes import HTTPRoute

from app.config import Settings
from app.main import create_app
from tests.conftest import Tenancy

UNKNOWN_ID = "018f0000-0000-7000-8000-000000000000"


def every_route() -> Iterator[tuple[str, str]]:
    app = create_app(Settings(database_url="postgresql://nobody@127.0.0.1/nothing"))
    for route in app.routes:
        assert isinstance(route, HTTPRoute), route.path
        for method in sorted(route.methods - {"OPTIONS"}):
            yield method, re.sub(r"\{[^}]*\}", UNKNOWN_ID, route.path)


@pytest.fixture(scope="module")
def key(tenancy: Tenancy) -> str:
    return tenancy.key(tenancy.tenant("acme"))


def test_every_route_refuses_an_unknown_parameter_and_names_its_own(client: httpx.Client) -> None:
    routes = list(every_route())
    assert len(routes) > 100
    document = client.get("/schema/openapi.json").json()
    documented = {
        (method.upper(), re.sub(r"\{[^}]*\}", UNKNOWN_ID, path)): sorted(
            item["name"] for item in operation.get("parameters", ()) if item["in"] == "query"
        )
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    }
    for method, path in routes:
        answer = client.request(method, f"{path}?never_a_parameter=1")
        assert answer.status_code == 400, (method, path, answer.text)
        error = answer.json()["error"]
        assert error["code"] == "unknown_parameter", (method, path)
        assert error["details"]["allowed"] == documented.get((method, path), []), (method, path)
        for name in error["details"]["allowed"]:
            assert name in error["message"]


def test_a_filter_that_does_not_exist_never_returns_everything(as_key: Callable[..., httpx.Client], key: str) -> None:
    client = as_key(key)
    client.post("/v1/notes", json={"content": "Bob likes tea"}).raise_for_status()
    error = client.get("/v1/notes", params={"writer": "Bob"}).json()["error"]
    assert (error["code"], error["details"]["fields"][0]["field"]) == ("unknown_parameter", "writer")
    assert "agent" in error["message"]
    # Names are compared as they are.
    assert client.get("/v1/notes", params={"Limit": "1"}).json()["error"]["code"] == "unknown_parameter"
    assert client.get("/v1/notes", params={"": "1"}).json()["error"]["code"] == "unknown_parameter"
    assert client.get("/v1/notes", params={"limit": "1"}).status_code == 200


@pytest.mark.parametrize("query", ["limit=1&limit=2", "tag=a&limit=5&tag=a"])
def test_a_single_value_given_twice_is_refused(as_key: Callable[..., httpx.Client], key: str, query: str) -> None:
    error = as_key(key).get(f"/v1/notes?{query}").json()["error"]
    assert error["code"] == "repeated_parameter"
    assert error["details"]["fields"][0]["field"] in query


def test_a_list_may_be_repeated(as_key: Callable[..., httpx.Client], key: str) -> None:
    answer = as_key(key).get("/v1/recall?query=tea&include=facts&include=notes")
    assert answer.status_code == 200, answer.text


def test_the_methods_of_a_path_are_listed_whatever_the_query(client: httpx.Client) -> None:
    assert client.options("/v1/notes?anything=1").status_code == 204
