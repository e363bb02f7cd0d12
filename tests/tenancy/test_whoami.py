"""GET /v1/whoami: the key as the service sees it."""

from collections.abc import Callable

import httpx

from tests.conftest import Tenancy


def test_an_agent_learns_its_tenant_project_and_scopes(tenancy: Tenancy, as_key: Callable[..., httpx.Client]) -> None:
    tenancy.tenant("acme")
    me = as_key(tenancy.key("acme", agent_id="robin", scopes=["notes:read"])).get("/v1/whoami")
    assert me.status_code == 200
    assert me.json()["tenant_id"] == "acme"
    assert me.json()["project_id"] == "default"
    assert me.json()["agent_id"] == "robin"
    assert me.json()["scopes"] == ["notes:read"]
