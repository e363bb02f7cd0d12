"""What was believed at one time about another: cases worked out by hand, asked over HTTP.

A scenario is written once. `t1`, `t2`, ... are the moments at which its writes were recorded, `t0` is one microsecond
before the first, and `t2-` one microsecond before the second. A year is its first moment, `2021-` the microsecond
before that. Without a valid_at, `as_of` is meant for both times; without either, now.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import psycopg
import pytest

from tests.facts.shared import listed, new, predicate, write, year
from tests.service import RunningService

Superuser = psycopg.Connection[dict[str, Any]]
MICROSECOND = timedelta(microseconds=1)


@dataclass
class Story:
    """One scenario while it is written: whom it is about, and when each of its steps was recorded."""

    robin: httpx.Client
    admin: httpx.Client
    superuser: Superuser
    subject: str = ""
    moments: list[datetime] = field(default_factory=list)
    """The moment of each step, the first one first."""

    def mark(self, moment: str | None = None) -> None:
        """The next step was recorded then, or, where no answer tells, just before now."""
        if moment is None:
            row = self.superuser.execute("SELECT clock_timestamp() AS now").fetchone()
            assert row is not None
            self.moments.append(row["now"])
        else:
            self.moments.append(datetime.fromisoformat(moment))

    def say(self, name: str, target: Any, start: int, end: int | None = None, **fields: Any) -> dict[str, Any]:
        """Writes a new fact, the next step."""
        times = {"valid_from": year(start), "valid_to": None if end is None else year(end)}
        answer = write(self.robin, fields.pop("subject", self.subject), name, target, **times, **fields)
        assert answer["outcome"] == "created"
        self.mark(answer["fact"]["created_at"])
        return answer["fact"]

    def say_again(self, name: str, target: Any, start: int, end: int | None = None, **fields: Any) -> None:
        """Confirms a fact, the next step."""
        times = {"valid_from": year(start), "valid_to": None if end is None else year(end)}
        assert write(self.robin, self.subject, name, target, **times, **fields)["outcome"] == "reused"
        self.mark()

    def retract(self, made: dict[str, Any]) -> None:
        answer = self.robin.post(f"/v1/facts/{made['fact_id']}/retract", json={})
        assert answer.status_code == 200, answer.text
        self.mark(answer.json()["fact"]["retracted_at"])

    def end(self, made: dict[str, Any], when: int | None) -> None:
        valid_to = None if when is None else year(when)
        answer = self.robin.patch(f"/v1/facts/{made['fact_id']}", json={"valid_to": valid_to})
        assert answer.status_code == 200, answer.text
        self.mark(answer.json()["fact"]["closed_at"])

    def bury(self, **fields: Any) -> str:
        answer = self.admin.post("/v1/tombstones", json={"entity": self.subject, "reason": "asked for", **fields})
        assert answer.status_code == 201, answer.text
        self.mark(answer.json()["tombstone"]["created_at"])
        return answer.json()["tombstone"]["tombstone_id"]

    def revoke(self, tombstone_id: str) -> None:
        answer = self.admin.post(f"/v1/tombstones/{tombstone_id}/revoke", json={"reason": "a mistake"})
        assert answer.status_code == 200, answer.text
        self.mark(answer.json()["tombstone"]["revocation"]["revoked_at"])

    def sweep(self, **policy: Any) -> None:
        """Lets time pass, by a policy that is there for this sweep alone."""
        made = self.admin.post("/v1/decay/policies", json=policy)
        assert made.status_code == 201, made.text
        swept = self.admin.post("/v1/decay/sweep", json={})
        self.mark()
        self.admin.delete(f"/v1/decay/policies/{made.json()['policy']['policy_id']}").raise_for_status()
        assert swept.status_code == 200, swept.text
        assert swept.json()["affected"] == 1

    def when(self, label: str) -> str:
        """A moment of this scenario, or of the world, by its label."""
        exact, before = label.rstrip("-"), label.endswith("-")
        if exact == "t0":
            moment = self.moments[0] - MICROSECOND
        elif exact.startswith("t"):
            moment = self.moments[int(exact[1:]) - 1]
        else:
            moment = datetime(int(exact), 1, 1, tzinfo=UTC)
        return (moment - MICROSECOND * before).isoformat()


def single(story: Story) -> str:
    return predicate(story.robin, cardinality="single", status="active")["name"]


def multi(story: Story) -> str:
    return predicate(story.robin, cardinality="multi", status="active")["name"]


def back_dated_correction(story: Story) -> None:
    home = single(story)
    story.say(home, "Bern", 2015)
    story.say(home, "Basel", 2020)
    story.say(home, "Zug", 2018)


def late_arrival(story: Story) -> None:
    employer = single(story)
    story.say(employer, {"entity": "Basel Works"}, 2020)
    story.say(employer, {"entity": "Bern Works"}, 2015)


def future_dated(story: Story) -> None:
    home = single(story)
    story.say(home, "Bern", 2015)
    story.say(home, "Basel", 2999)


def retracted_and_said_again(story: Story) -> None:
    likes = multi(story)
    story.retract(story.say(likes, "tea", 2015))
    story.say(likes, "tea", 2015)


def closed_later_and_reopened(story: Story) -> None:
    made = story.say(multi(story), "tea", 2015)
    story.end(made, 2020)
    story.end(made, 2018)
    story.end(made, None)


def equal_start_replaced(story: Story) -> None:
    home = single(story)
    story.say(home, "Bern", 2015)
    story.say(home, "Basel", 2015)


def known_end(story: Story) -> None:
    home = single(story)
    story.say(home, "Bern", 2015, 2999)
    story.retract(story.say(home, "Basel", 2020))


def belief_stretched(story: Story) -> None:
    likes = multi(story)
    story.say(likes, "tea", 2015, 2017)
    story.say_again(likes, "tea", 2016, 2020)


def written_as_a_batch(story: Story) -> None:
    home = single(story)
    places = [("Bern", 2015), ("Basel", 2020), ("Zug", 2018)]
    facts = [
        {"subject": story.subject, "predicate": home, "object": {"value": place}, "valid_from": year(start)}
        for place, start in places
    ]
    answer = story.robin.post("/v1/facts/batch", json={"facts": facts})
    assert answer.status_code == 200, answer.text
    for result in answer.json()["results"]:
        story.mark(result["fact"]["created_at"])


def forgotten(story: Story) -> None:
    likes = multi(story)
    story.say(likes, "tea", 2015)
    story.say(likes, "milk", 2018)
    story.bury()


def forgotten_and_restored(story: Story) -> None:
    likes = multi(story)
    story.say(likes, "tea", 2015)
    story.retract(story.say(likes, "milk", 2015))
    tombstone = story.bury()
    story.say(likes, "beer", 2015)
    story.revoke(tombstone)
    story.say(likes, "wine", 2015)


def held(story: Story) -> None:
    likes = multi(story)
    made = story.say(likes, "tea", 2015)
    story.say(likes, "milk", 2018)
    story.end(made, 2020)
    story.bury(legal_hold=True)


def pointing_to_the_held(story: Story) -> None:
    knows, held_one, free_one = multi(story), new("held"), new("free")
    story.say(knows, {"entity": held_one}, 2015)
    story.say(knows, {"entity": free_one}, 2015)
    subject, story.subject = story.subject, held_one
    story.bury(legal_hold=True)
    story.subject = subject


def forgotten_in_one_scope(story: Story) -> None:
    likes = multi(story)
    story.say(likes, "tea", 2015, scope="org_shared")
    story.say(likes, "milk", 2015, scope="project_shared")
    story.bury(scope="company")


def held_in_one_scope(story: Story) -> None:
    likes = multi(story)
    story.say(likes, "tea", 2015, scope="org_shared")
    story.say(likes, "milk", 2015, scope="project_shared")
    story.bury(scope=["org_shared", "public"], legal_hold=True)


def held_and_forgotten(story: Story) -> None:
    likes = multi(story)
    story.say(likes, "tea", 2015, scope="org_shared")
    story.say(likes, "milk", 2015, scope="project_shared")
    story.bury(legal_hold=True)
    story.bury(scope="org_shared")


def less_and_less_sure(story: Story) -> None:
    likes = multi(story)
    made = story.say(likes, "tea", 2015, confidence=0.9)
    story.say_again(likes, "tea", 2015, confidence=0.3)
    story.retract(made)


def decayed(story: Story) -> None:
    likes = multi(story)
    story.say(likes, "tea", 2015, confidence=0.8)
    # Two half-lives and more, so that it falls to the floor.
    time.sleep(0.2)
    story.sweep(relation=likes, mode="confidence", half_life_s=0.02, min_confidence=0.2)
    story.say_again(likes, "tea", 2015, confidence=0.6)


def decayed_away(story: Story) -> None:
    likes = multi(story)
    story.say(likes, "tea", 2015, confidence=0.8)
    story.sweep(relation=likes, mode="retract", ttl_s=0.000001)


def in_conflict(story: Story) -> None:
    born = new("born in")
    first = story.say(born, "Bern", 1990, confidence=0.6)
    story.say(born, "Basel", 1990, confidence=0.5)
    story.say_again(born, "Basel", 1990, confidence=0.9)
    story.retract(first)


@dataclass(frozen=True)
class Case:
    """A question, and the facts that answer it: `value from..to`, or with `sure` also how sure one was."""

    story: Callable[[Story], None]
    as_of: str | None
    valid_at: str | None
    expected: list[str]
    who: str = "robin"
    sure: bool = False
    params: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        asked = [f"{name}={value}" for name, value in self.params.items()]
        return " ".join([self.story.__name__, f"as_of={self.as_of}", f"valid_at={self.valid_at}", self.who, *asked])


ALL = {"include_inactive": True}
PREFERRED = {"include_contradicted": False}


def sure_of(least: float, **params: Any) -> dict[str, Any]:
    return {"min_confidence": least, **params}


CASES = [
    Case(back_dated_correction, "t0", "2021", []),
    Case(back_dated_correction, "t1", "2014", []),
    Case(back_dated_correction, "t1", "2019", ["Bern 2015.."]),
    Case(back_dated_correction, "t1", "2021", ["Bern 2015.."]),
    Case(back_dated_correction, "t1", None, ["Bern 2015.."]),
    Case(back_dated_correction, "t2", "2019", ["Bern 2015..2020"]),
    Case(back_dated_correction, "t2", "2021", ["Basel 2020.."]),
    Case(back_dated_correction, "t3-", "2019", ["Bern 2015..2020"]),
    Case(back_dated_correction, "t3", "2019", ["Zug 2018..2020"]),
    Case(back_dated_correction, "t3", "2018", ["Zug 2018..2020"]),
    Case(back_dated_correction, "t3", "2018-", ["Bern 2015..2018"]),
    Case(back_dated_correction, "t3", "2020-", ["Zug 2018..2020"]),
    Case(back_dated_correction, "t3", "2020", ["Basel 2020.."]),
    Case(back_dated_correction, None, "2019", ["Zug 2018..2020"]),
    Case(back_dated_correction, None, None, ["Basel 2020.."]),
    Case(back_dated_correction, "t0", None, [], params=ALL),
    Case(back_dated_correction, "t2", None, ["Basel 2020..", "Bern 2015..2020"], params=ALL),
    Case(back_dated_correction, "t2", "2014", ["Basel 2020..", "Bern 2015..2020"], params=ALL),
    Case(back_dated_correction, "t3", None, ["Basel 2020..", "Bern 2015..2018", "Zug 2018..2020"], params=ALL),
    Case(late_arrival, "t1", "2019", []),
    Case(late_arrival, "t1", None, ["Basel Works 2020.."]),
    Case(late_arrival, "t2-", "2019", []),
    Case(late_arrival, "t2", "2019", ["Bern Works 2015..2020"]),
    Case(late_arrival, "t2", "2014", []),
    Case(late_arrival, "t2", None, ["Basel Works 2020.."]),
    Case(late_arrival, None, "2019", ["Bern Works 2015..2020"]),
    Case(future_dated, "t1", None, ["Bern 2015.."]),
    Case(future_dated, "t1", "3000", ["Bern 2015.."]),
    Case(future_dated, "t2", None, ["Bern 2015..2999"]),
    Case(future_dated, "t2", "2999-", ["Bern 2015..2999"]),
    Case(future_dated, "t2", "2999", ["Basel 2999.."]),
    Case(future_dated, None, None, ["Bern 2015..2999"]),
    Case(future_dated, None, "3000", ["Basel 2999.."]),
    Case(retracted_and_said_again, "t1", None, ["tea 2015.."]),
    Case(retracted_and_said_again, "t1", "2014", []),
    Case(retracted_and_said_again, "t2-", None, ["tea 2015.."]),
    Case(retracted_and_said_again, "t2", None, []),
    Case(retracted_and_said_again, "t2", "2016", []),
    Case(retracted_and_said_again, "t2", None, ["tea 2015.."], params=ALL),
    Case(retracted_and_said_again, "t3-", "2016", []),
    Case(retracted_and_said_again, "t3", "2016", ["tea 2015.."]),
    Case(retracted_and_said_again, "t3", None, ["tea 2015..", "tea 2015.."], params=ALL),
    Case(retracted_and_said_again, None, None, ["tea 2015.."]),
    Case(closed_later_and_reopened, "t1", "2021", ["tea 2015.."]),
    Case(closed_later_and_reopened, "t2", "2021", []),
    Case(closed_later_and_reopened, "t2", None, []),
    Case(closed_later_and_reopened, "t2", "2019", ["tea 2015..2020"]),
    Case(closed_later_and_reopened, "t2", None, ["tea 2015..2020"], params=ALL),
    Case(closed_later_and_reopened, "t3-", "2019", ["tea 2015..2020"]),
    Case(closed_later_and_reopened, "t3", "2019", []),
    Case(closed_later_and_reopened, "t3", "2018-", ["tea 2015..2018"]),
    Case(closed_later_and_reopened, "t4", "2021", ["tea 2015.."]),
    Case(closed_later_and_reopened, "t4", None, ["tea 2015.."]),
    Case(closed_later_and_reopened, None, None, ["tea 2015.."]),
    Case(equal_start_replaced, "t1", "2016", ["Bern 2015.."]),
    Case(equal_start_replaced, "t2-", None, ["Bern 2015.."]),
    Case(equal_start_replaced, "t2", "2016", ["Basel 2015.."]),
    Case(equal_start_replaced, "t2", "2015", ["Basel 2015.."]),
    Case(equal_start_replaced, "t1", None, ["Bern 2015.."], params=ALL),
    Case(equal_start_replaced, "t2", None, ["Basel 2015..", "Bern 2015.."], params=ALL),
    Case(known_end, "t1", None, ["Bern 2015..2999"]),
    Case(known_end, "t1", "2999", []),
    Case(known_end, "t2", None, ["Basel 2020.."]),
    Case(known_end, "t2", "2999", ["Basel 2020.."]),
    Case(known_end, "t2", "2016", ["Bern 2015..2020"]),
    Case(known_end, "t3", None, []),
    Case(known_end, "t3", "2016", ["Bern 2015..2020"]),
    Case(known_end, "t3-", None, ["Basel 2020.."]),
    Case(belief_stretched, "t1", "2018", []),
    Case(belief_stretched, "t1", "2016", ["tea 2015..2017"]),
    Case(belief_stretched, "t2", "2016", ["tea 2015..2020"]),
    Case(belief_stretched, "t2", "2018", ["tea 2015..2020"]),
    Case(belief_stretched, "t2", "2020", []),
    Case(written_as_a_batch, "t1", "2021", ["Bern 2015.."]),
    Case(written_as_a_batch, "t2", "2019", ["Bern 2015..2020"]),
    Case(written_as_a_batch, "t2", "2021", ["Basel 2020.."]),
    Case(written_as_a_batch, "t3", "2019", ["Zug 2018..2020"]),
    Case(forgotten, "t1", None, []),
    Case(forgotten, "t2", "2019", []),
    Case(forgotten, "t3-", "2019", []),
    Case(forgotten, "t2", "2019", [], who="admin"),
    Case(forgotten, "t2", None, [], who="admin", params=ALL),
    Case(forgotten, None, "2019", []),
    Case(forgotten_and_restored, "t1", None, ["tea 2015.."]),
    Case(forgotten_and_restored, "t2", None, ["milk 2015..", "tea 2015.."]),
    Case(forgotten_and_restored, "t3", None, ["tea 2015.."]),
    Case(forgotten_and_restored, "t4", None, ["tea 2015.."]),
    Case(forgotten_and_restored, "t5-", None, ["tea 2015.."]),
    Case(forgotten_and_restored, "t5", None, ["beer 2015..", "tea 2015.."]),
    Case(forgotten_and_restored, "t6", None, ["beer 2015..", "tea 2015.."]),
    Case(forgotten_and_restored, None, None, ["beer 2015..", "tea 2015..", "wine 2015.."]),
    Case(held, "t1", None, []),
    Case(held, "t2", "2019", []),
    Case(held, "t4", "2019", [], params=ALL),
    Case(held, None, "2019", []),
    Case(held, None, None, [], who="admin"),
    Case(held, None, "2019", [], who="admin"),
    Case(held, None, None, [], who="admin", params=ALL),
    Case(held, "t0", "2019", [], who="admin"),
    Case(held, "t1", "2019", ["tea 2015.."], who="admin"),
    Case(held, "t2", "2019", ["milk 2018..", "tea 2015.."], who="admin"),
    Case(held, "t2", "2016", ["tea 2015.."], who="admin"),
    Case(held, "t3", "2019", ["milk 2018..", "tea 2015..2020"], who="admin"),
    Case(held, "t3", None, ["milk 2018.."], who="admin"),
    Case(held, "t4", None, ["milk 2018.."], who="admin"),
    Case(held, "t4", None, ["milk 2018..", "tea 2015..2020"], who="admin", params=ALL),
    Case(pointing_to_the_held, "t2", None, ["free 2015.."]),
    Case(pointing_to_the_held, None, None, ["free 2015.."], who="admin"),
    Case(pointing_to_the_held, "t1", None, ["held 2015.."], who="admin"),
    Case(pointing_to_the_held, "t3", None, ["free 2015..", "held 2015.."], who="admin"),
    Case(forgotten_in_one_scope, "t1", None, []),
    Case(forgotten_in_one_scope, "t2", None, ["milk 2015.."]),
    Case(forgotten_in_one_scope, "t2", None, ["milk 2015.."], who="admin"),
    Case(forgotten_in_one_scope, "t2", None, [], params={"scope": "company"}),
    Case(forgotten_in_one_scope, None, None, ["milk 2015.."]),
    Case(held_in_one_scope, "t2", None, ["milk 2015.."]),
    Case(held_in_one_scope, None, None, ["milk 2015.."], who="admin"),
    Case(held_in_one_scope, "t1", None, ["tea 2015.."], who="admin"),
    Case(held_in_one_scope, "t2", None, ["milk 2015..", "tea 2015.."], who="admin"),
    Case(held_in_one_scope, "t2", None, ["milk 2015.."], who="admin", params={"scope": "team"}),
    Case(held_and_forgotten, "t2", None, ["milk 2015.."], who="admin"),
    Case(held_and_forgotten, "t1", None, [], who="admin"),
    Case(held_and_forgotten, "t2", None, []),
    Case(less_and_less_sure, "t1", None, ["tea 2015.. 0.9"], sure=True),
    Case(less_and_less_sure, "t2", None, ["tea 2015.. 0.6"], sure=True),
    Case(less_and_less_sure, "t3-", None, ["tea 2015.. 0.6"], sure=True),
    Case(less_and_less_sure, "t3", None, ["tea 2015.. 0.0"], sure=True, params=ALL),
    Case(less_and_less_sure, "t1", None, ["tea 2015.. 0.9"], sure=True, params=ALL),
    Case(less_and_less_sure, "t1", None, ["tea 2015.."], params=sure_of(0.9)),
    Case(less_and_less_sure, "t1", "2014", [], params=sure_of(0.9)),
    Case(less_and_less_sure, "t2", None, [], params=sure_of(0.7)),
    Case(less_and_less_sure, "t2", None, ["tea 2015.."], params=sure_of(0.5)),
    Case(less_and_less_sure, "t3", None, [], params=sure_of(0.1, include_inactive=True)),
    Case(less_and_less_sure, "t3-", None, ["tea 2015.."], params=sure_of(0.5, include_inactive=True)),
    Case(less_and_less_sure, None, None, [], params=sure_of(0.1, include_inactive=True)),
    Case(decayed, "t1", None, ["tea 2015.. 0.8"], sure=True),
    Case(decayed, "t2", None, ["tea 2015.. 0.2"], sure=True),
    Case(decayed, "t3", None, ["tea 2015.. 0.4"], sure=True),
    Case(decayed, "t1", "2016", ["tea 2015.."], params=sure_of(0.8)),
    Case(decayed, "t2", "2016", [], params=sure_of(0.3)),
    Case(decayed, "t3", "2016", ["tea 2015.."], params=sure_of(0.3)),
    Case(decayed, "t3", "2016", [], params=sure_of(0.5)),
    Case(decayed, None, None, ["tea 2015.. 0.4"], sure=True),
    Case(decayed_away, "t1", None, ["tea 2015.. 0.8"], sure=True),
    Case(decayed_away, "t1", None, ["tea 2015.."], params=sure_of(0.8)),
    Case(decayed_away, "t2", None, []),
    Case(decayed_away, "t2", None, ["tea 2015.. 0.0"], sure=True, params=ALL),
    Case(in_conflict, "t1", None, ["Bern 1990.."], params=PREFERRED),
    Case(in_conflict, "t2", None, ["Basel 1990..", "Bern 1990.."]),
    Case(in_conflict, "t2", None, ["Bern 1990.."], params=PREFERRED),
    Case(in_conflict, "t3", None, ["Basel 1990.."], params=PREFERRED),
    Case(in_conflict, "t4-", None, ["Basel 1990.."], params=PREFERRED),
    Case(in_conflict, "t4", None, ["Basel 1990.."]),
    Case(in_conflict, None, None, ["Basel 1990.."], params=PREFERRED),
]


@pytest.fixture(scope="module")
def callers(service: RunningService, keys: dict[str, str]) -> Iterator[dict[str, httpx.Client]]:
    made = {
        name: httpx.Client(
            base_url=service.url,
            headers={"Authorization": f"Bearer {keys[name]}", "X-Project-Id": "default"},
            timeout=30,
            verify=False,
        )
        for name in ("robin", "admin")
    }
    yield made
    for client in made.values():
        client.close()


@pytest.fixture(scope="module")
def stories(callers: dict[str, httpx.Client], superuser: Superuser) -> dict[str, Story]:
    """Every scenario, written in full before anything is asked."""
    told: dict[str, Story] = {}
    for tell in dict.fromkeys(case.story for case in CASES):
        told[tell.__name__] = story = Story(callers["robin"], callers["admin"], superuser, new("subject"))
        tell(story)
        assert story.moments == sorted(story.moments)
    return told


def shown(item: dict[str, Any], *, sure: bool) -> str:
    target = item["object"]
    # Names end in something unique where they have to be.
    name = target["value"] if "value" in target else target["entity"]["canonical"]
    name = name.split()[0] if name.split()[0] in ("held", "free") else name
    end = "" if item["valid_to"] is None else item["valid_to"][:4]
    weight = f" {round(item['confidence'], 6)}" if sure else ""
    return f"{name} {item['valid_from'][:4]}..{end}{weight}"


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_was_believed_at_one_time_about_another(
    case: Case, stories: dict[str, Story], callers: dict[str, httpx.Client]
) -> None:
    story = stories[case.story.__name__]
    times = {"as_of": case.as_of, "valid_at": case.valid_at}
    asked = {name: story.when(label) for name, label in times.items() if label is not None}
    found = listed(callers[case.who], entity=story.subject, **asked, **case.params)
    assert sorted(shown(item, sure=case.sure) for item in found) == case.expected
    # Of the whole project the database finds them by other ways.
    everything = listed(callers[case.who], **asked, **case.params)
    assert len(everything) < 200
    assert [item for item in everything if item["subject"]["canonical"] == story.subject] == found


def test_what_is_thousands_of_half_lives_old_is_as_unsure_as_its_policy_allows(
    callers: dict[str, httpx.Client], superuser: Superuser
) -> None:
    story = Story(callers["robin"], callers["admin"], superuser, new("subject"))
    likes = multi(story)
    story.say(likes, "tea", 2015, confidence=0.8)
    story.sweep(relation=likes, mode="confidence", half_life_s=0.000001, min_confidence=0.2)
    assert [shown(item, sure=True) for item in listed(story.robin, entity=story.subject)] == ["tea 2015.. 0.2"]
