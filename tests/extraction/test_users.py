"""What a model makes of a user's note is that user's alone: derived notes, facts, names, and reviews."""

from collections.abc import Callable

from tests.extraction.conftest import Project
from tests.extraction.test_modes import TRIPLE, always, replacing
from tests.extraction.test_reviews import NEW, OLD

BOB, CAROL = {"X-User-Id": "bob"}, {"X-User-Id": "carol"}
SAID = "The heron nests in the old willow."


def test_what_is_extracted_of_a_users_note_is_theirs(make_project: Callable[..., Project]) -> None:
    project = make_project(graph_enabled=True)
    project.script(always(SAID, entities=[TRIPLE]))
    project.say("Bob saw it himself this morning.", user_id="bob")
    (derived,) = project.derived()
    assert (derived["content"], derived["user_id"]) == (SAID, "bob")
    (fact,) = project.agent.get("/v1/facts", headers=BOB).json()["facts"]
    assert (fact["user_id"], fact["subject"]["canonical"]) == ("bob", "heron")
    assert project.agent.get("/v1/facts", headers=CAROL).json()["facts"] == []
    assert project.agent.get("/v1/entities", headers=CAROL).json()["entities"] == []
    # The same of another user's note is another fact about another entity.
    project.say("Carol saw it as well, in the evening.", user_id="carol")
    (theirs,) = project.agent.get("/v1/facts", headers=CAROL).json()["facts"]
    assert theirs["subject"]["entity_id"] != fact["subject"]["entity_id"]


def test_a_review_of_a_users_note_is_theirs(make_project: Callable[..., Project]) -> None:
    project = make_project(allow_update_delete=True)
    project.script(replacing("UPDATE", OLD, NEW))
    project.say("The first words.", user_id="bob")
    project.say("There is news.", user_id="bob")
    (review,) = project.agent.get("/v1/reviews", headers=BOB).json()["reviews"]
    path = f"/v1/reviews/{review['review_id']}"
    assert project.agent.get("/v1/reviews", headers=CAROL).json()["reviews"] == []
    assert project.agent.post(f"{path}/approve", json={}, headers=CAROL).status_code == 404
    assert project.agent.post(f"{path}/approve", json={}, headers=BOB).status_code == 200
    assert NEW in [note["content"] for note in project.agent.get("/v1/notes", headers=BOB).json()["notes"]]


def test_a_common_review_is_not_decided_by_a_user(make_project: Callable[..., Project]) -> None:
    project = make_project(allow_update_delete=True)
    project.script(replacing("UPDATE", OLD, NEW))
    project.say("The first words.")
    project.say("There is news.")
    (review,) = project.agent.get("/v1/reviews", headers=BOB).json()["reviews"]
    for action in ("approve", "reject"):
        refused = project.agent.post(f"/v1/reviews/{review['review_id']}/{action}", json={}, headers=BOB)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "shared_read_only")
