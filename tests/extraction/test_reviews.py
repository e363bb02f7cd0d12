"""PIPELINE, contradiction detector: what speaks against what is known waits for somebody to decide."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.extraction.conftest import Project
from tests.extraction.model_server import decision
from tests.extraction.test_modes import replacing

OLD = "Dark mode is enabled in the app of Mara."
NEW = "Dark mode is disabled in the app of Mara."


@pytest.fixture
def flagged(make_project: Callable[..., Project]) -> Callable[[str], tuple[Project, dict[str, Any], dict[str, Any]]]:
    """A project with one note and one review that would change it."""

    def make(action: str) -> tuple[Project, dict[str, Any], dict[str, Any]]:
        project = make_project(allow_update_delete=True)
        project.script(replacing(action, OLD, NEW, reason="it was switched off"))
        project.say("The first words.")
        made = project.say("There is news.")
        (proposal,) = project.proposals(made["note"]["note_id"])
        assert (proposal["outcome"], proposal["review_needed"]) == ("review", True)
        (review,) = project.agent.get("/v1/reviews").json()["reviews"]
        assert review["review_id"] == proposal["review_id"]
        (note,) = project.derived()
        assert (note["content"], note["version"]) == (OLD, 1)
        return project, review, note

    return make


def test_a_contradiction_waits_for_a_decision(flagged: Callable[..., Any]) -> None:
    project, review, note = flagged("UPDATE")
    shown = {name: review[name] for name in ("action", "status", "content", "reason", "target_note_id", "type")}
    assert shown == {
        "action": "update", "status": "pending", "content": NEW, "reason": "it was switched off",
        "target_note_id": note["note_id"], "type": "fact",
    }  # fmt: skip
    assert review["target"] == {"note_id": note["note_id"], "content": OLD, "version": 1}
    assert project.agent.get(f"/v1/reviews/{review['review_id']}").json() == review
    assert project.agent.get("/v1/reviews", params={"status": "approved"}).json()["reviews"] == []


def test_an_approved_update_is_applied_in_the_name_of_who_approved(flagged: Callable[..., Any]) -> None:
    project, review, note = flagged("UPDATE")
    path = f"/v1/reviews/{review['review_id']}"
    decided = project.agent.post(f"{path}/approve", json={"reason": "she said so"})
    assert decided.status_code == 200
    shown = decided.json()["review"]
    assert (shown["status"], shown["decided_by"], shown["decision_reason"]) == ("approved", "robin", "she said so")
    assert project.derived()[0]["content"] == NEW
    event = project.agent.get(f"/v1/notes/{note['note_id']}/history").json()["events"][-1]
    assert (event["event"], event["changed_by"], event["old_content"]) == ("updated", "robin", OLD)
    assert event["proposal"]["review_id"] == review["review_id"]
    again = project.agent.post(f"{path}/approve")
    assert (again.status_code, again.json()["error"]["code"]) == (409, "review_already_decided")
    query = "SELECT details FROM audit_log WHERE tenant_id = %s AND event_type = 'review_decide'"
    (line,) = project.rows(query, project.tenant)
    expected = {"action": "approved", "review_id": review["review_id"], "target_note_id": note["note_id"]}
    assert line["details"] == expected


def test_an_approved_deletion_can_be_recovered(flagged: Callable[..., Any]) -> None:
    project, review, note = flagged("DELETE")
    assert project.agent.post(f"/v1/reviews/{review['review_id']}/approve", json={}).status_code == 200
    assert project.derived() == []
    assert project.agent.post(f"/v1/notes/{note['note_id']}/recover", json={"reason": "x"}).status_code == 200


def test_a_rejected_one_changes_nothing(flagged: Callable[..., Any]) -> None:
    project, review, note = flagged("DELETE")
    decided = project.agent.post(f"/v1/reviews/{review['review_id']}/reject")
    assert decided.json()["review"]["status"] == "rejected"
    assert project.derived() == [note]
    assert project.agent.post(f"/v1/reviews/{review['review_id']}/approve").status_code == 409


def test_one_whose_note_has_changed_cannot_be_approved(flagged: Callable[..., Any]) -> None:
    project, review, note = flagged("UPDATE")
    project.script(lambda _: decision("NONE"))
    project.agent.patch(f"/v1/notes/{note['note_id']}", json={"tags": ["x"], "reason": "tagged"})
    refused = project.agent.post(f"/v1/reviews/{review['review_id']}/approve")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "review_stale")
    assert project.agent.get(f"/v1/reviews/{review['review_id']}").json()["status"] == "pending"


def test_reviews_are_only_for_who_may_read_the_notes(
    flagged: Callable[..., Any], as_client: Callable[..., Any]
) -> None:
    project, review, _ = flagged("UPDATE")
    tenancy = project.tenancy
    reader = as_client(tenancy.key(project.tenant, agent_id="wren", scopes=["notes:read"]))
    assert len(reader.get("/v1/reviews").json()["reviews"]) == 1
    assert reader.post(f"/v1/reviews/{review['review_id']}/approve").status_code == 403
    tenancy.tenant(f"{project.tenant}-b")
    stranger = as_client(tenancy.key(f"{project.tenant}-b", agent_id="robin"))
    assert stranger.get("/v1/reviews").json()["reviews"] == []
    assert stranger.get(f"/v1/reviews/{review['review_id']}").status_code == 404
    assert stranger.post(f"/v1/reviews/{review['review_id']}/approve").status_code == 404


def test_a_private_review_is_its_agents_alone(
    make_project: Callable[..., Project], as_client: Callable[..., Any]
) -> None:
    project = make_project(allow_update_delete=True)
    project.script(replacing("UPDATE", OLD, NEW))
    project.say("The first words.", scope="agent_private")
    project.say("There is news.", scope="agent_private")
    (review,) = project.agent.get("/v1/reviews").json()["reviews"]
    wren = as_client(project.tenancy.key(project.tenant, agent_id="wren"))
    assert wren.get("/v1/reviews").json()["reviews"] == []
    assert wren.post(f"/v1/reviews/{review['review_id']}/reject").status_code == 404


def test_a_reader_of_a_garden_decides_nothing_in_it(
    make_project: Callable[..., Project], as_client: Callable[..., Any]
) -> None:
    project = make_project(allow_update_delete=True)
    garden = project.agent.post("/v1/gardens", json={"slug": "g", "name": "G", "scope": "team"}).json()["garden"]
    project.script(replacing("UPDATE", OLD, NEW))
    project.say("The first words.", garden_id=garden["garden_id"])
    project.say("There is news.", garden_id=garden["garden_id"])
    wren = as_client(project.tenancy.key(project.tenant, agent_id="wren"))
    project.agent.put(f"/v1/gardens/{garden['garden_id']}/members/wren", json={"role": "reader"})
    (review,) = wren.get("/v1/reviews").json()["reviews"]
    assert wren.post(f"/v1/reviews/{review['review_id']}/approve").status_code == 403
    assert wren.post(f"/v1/reviews/{review['review_id']}/reject").status_code == 403
    assert project.agent.post(f"/v1/reviews/{review['review_id']}/approve").status_code == 200


def test_the_brake_holds_reviews_too(flagged: Callable[..., Any]) -> None:
    project, review, note = flagged("UPDATE")
    project.set(mutations_frozen=True)
    refused = project.agent.post(f"/v1/reviews/{review['review_id']}/approve")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "mutations_frozen")
    assert project.derived() == [note]


def test_reviews_are_paged(make_project: Callable[..., Project]) -> None:
    project = make_project(allow_update_delete=True)
    project.script(replacing("UPDATE", OLD, NEW))
    project.say("The first words.")
    for number in range(3):
        project.say(f"There is news, number {number}.")
    first = project.agent.get("/v1/reviews", params={"limit": 2}).json()
    rest = project.agent.get("/v1/reviews", params={"limit": 2, "cursor": first["next_cursor"]}).json()
    assert len({one["review_id"] for one in first["reviews"] + rest["reviews"]}) == 3
    assert rest["next_cursor"] is None
