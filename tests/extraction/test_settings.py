"""PIPELINE, Configuration Reference: names, defaults and ranges, for each project, at once."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.extraction.conftest import Project

PATH = "/v1/projects/default/settings"
DEFAULTS: dict[str, Any] = {
    "enabled": False, "shadow_mode": False, "allow_update_delete": False, "graph_enabled": False,
    "autonomous_enabled": False, "mutations_frozen": False, "autonomous_frozen": False,
    "extraction_model": "qwen3:4b", "extraction_timeout": 45000, "worker_poll_ms": 2000, "worker_max_retries": 3,
    "lease_timeout_ms": 300000, "min_fact_confidence_for_write": 0.7, "graph_boost_weight": 0.15,
    "graph_boost_timeout_ms": 500, "reranker_enabled": False, "reranker_model": "", "reranker_top_n": 20,
    "reranker_timeout_ms": 2000, "maintenance_interval_ms": 1800000, "maintenance_mode": "observe",
    "repair_reembed_cooldown_ms": 300000, "repair_reembed_hourly_budget": 10, "repair_requeue_cooldown_ms": 60000,
    "repair_requeue_hourly_budget": 50, "document_worker_interval_ms": 10000, "document_chunk_size": 2000,
    "document_chunk_overlap": 200, "document_max_content_bytes": 10485760,
    "document_extract_chunks": 100,
}  # fmt: skip
RANGES = {
    "extraction_timeout": (5000, 300000), "worker_poll_ms": (100, 60000), "worker_max_retries": (1, 10),
    "lease_timeout_ms": (10000, 600000), "min_fact_confidence_for_write": (0, 1), "graph_boost_weight": (0, 1),
    "graph_boost_timeout_ms": (50, 5000), "reranker_top_n": (1, 100), "reranker_timeout_ms": (100, 30000),
    "maintenance_interval_ms": (60000, 86400000), "repair_reembed_cooldown_ms": (10000, 3600000),
    "repair_reembed_hourly_budget": (1, 1000), "repair_requeue_cooldown_ms": (5000, 3600000),
    "repair_requeue_hourly_budget": (1, 1000), "document_worker_interval_ms": (1000, 300000),
    "document_chunk_size": (200, 50000), "document_chunk_overlap": (0, 10000),
    "document_max_content_bytes": (1024, 104857600), "document_extract_chunks": (0, 100000),
}  # fmt: skip


def test_configuration_defaults(make_project: Callable[..., Project]) -> None:
    project = make_project(enabled=None, extraction_model=None)
    found = project.agent.get(PATH).json()
    assert {name: found[name] for name in DEFAULTS} == DEFAULTS


@pytest.mark.parametrize("name", sorted(RANGES))
def test_configuration_ranges(project: Project, name: str) -> None:
    low, high = RANGES[name]
    room = {"document_chunk_size": 50000} if name == "document_chunk_overlap" else {}
    room |= {"document_chunk_overlap": 0} if name == "document_chunk_size" else {}
    for value in (low, high):
        assert project.set(**room, **{name: value})[name] == value
    for value in (low - 1, high + 1, "much", None if name == "" else True):
        refused = project.admin.put(PATH, json={name: value})
        assert refused.status_code == 400, value
        assert name in refused.json()["error"]["message"]
    assert project.set(**{name: None})[name] == DEFAULTS[name]


def test_configuration_what_is_not_named_stays(project: Project) -> None:
    project.set(shadow_mode=True)
    found = project.set(graph_enabled=True)
    assert (found["shadow_mode"], found["graph_enabled"]) == (True, True)
    assert project.admin.get(PATH).json() == found
    assert project.admin.put(PATH, json=found).json() == found


@pytest.mark.parametrize(
    "body",
    [
        {"shadowMode": True},
        {"nonsense": 1},
        {"maintenance_mode": "destroy"},
        {"enabled": "yes"},
        {"document_chunk_size": 200, "document_chunk_overlap": 200},
        {"extraction_provider": "http://169.254.169.254"},
        {"extraction_token_budget": -1},
        [],
        "on",
    ],
)
def test_configuration_what_does_not_hold_is_refused_whole(project: Project, body: Any) -> None:
    before = project.admin.get(PATH).json()
    answer = project.admin.put(PATH, json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"]
    assert project.admin.get(PATH).json() == before


def test_configuration_only_administrators_change_it_and_only_of_their_own(
    project: Project, make_project: Callable[..., Project], as_client: Callable[..., httpx.Client]
) -> None:
    assert project.agent.put(PATH, json={"enabled": False}).status_code == 403
    assert project.admin.get("/v1/projects/elsewhere/settings").status_code == 404
    bound = as_client(project.tenancy.key(project.tenant, kind="admin", project_id="default"))
    assert bound.get("/v1/projects/elsewhere/settings").status_code == 403
    other = make_project(shadow_mode=True)
    assert project.admin.get(PATH).json()["shadow_mode"] is False
    assert other.admin.get(PATH).json()["shadow_mode"] is True


def test_configuration_other_settings_of_the_project_are_left_alone(project: Project) -> None:
    assert project.admin.patch("/v1/admin/projects/default", json={"trace_days": 7}).status_code == 200
    project.set(shadow_mode=True)
    shown = project.admin.get("/v1/admin/projects").json()["projects"][0]
    assert shown["settings"] == {"trace_days": 7}
    project.admin.patch("/v1/admin/projects/default", json={"trace_days": 8})
    assert project.admin.get(PATH).json()["shadow_mode"] is True


def test_configuration_a_change_works_without_a_restart(make_project: Callable[..., Project]) -> None:
    project = make_project(enabled=False)
    project.script(lambda _: '{"facts": [], "entities": []}')
    made = project.say("Nobody reads this one.")
    assert (made["job_id"], made["note"]["extraction_status"]) == (None, "none")
    project.set(enabled=True)
    made = project.say("Somebody reads this one.")
    assert made["note"]["extraction_status"] == "completed"
    project.set(enabled=False)
    assert project.say("And nobody reads this one.")["job_id"] is None
    assert len(project.asked()) == 1
