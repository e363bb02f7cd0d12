"""Objects are found by their words as notes are: BM25 over heads, in the project's language."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from tests.conftest import TestDatabase
from tests.objects.entity_links.shared import Objects, Superuser

MATCH = """
    SELECT m.canonical_id::text AS id, m.score
    FROM weigh_terms(%(tenant)s, %(project)s, 'object', %(query)s, 64) w
    CROSS JOIN LATERAL match_objects(
        w.terms, ARRAY(SELECT ln(1 + (w.total - d + 0.5) / (d + 0.5)) FROM unnest(w.documents) d),
        choose_terms(w.terms, w.documents, 2000), w.average, 4000, 10) m
    ORDER BY m.score DESC, 1"""


class Reader:
    """Connect as the service's role, in the scope of one project."""

    def __init__(self, connection: Superuser) -> None:
        self.connection = connection

    def ask(self, tenant: str, project: str, statement: str, **params: Any) -> list[dict[str, Any]]:
        with self.connection.transaction():
            self.connection.execute("SELECT set_scope(%s, %s, 'robin', '{}', '')", (tenant, project))
            place = {"tenant": tenant, "project": project}
            return self.connection.execute(statement.encode(), {**place, **params}).fetchall()

    def find(self, query: str, tenant: str = "acme", project: str = "default") -> list[str]:
        found = self.ask(tenant, project, MATCH, query=query)
        assert all(row["score"] > 0 for row in found)
        return [row["id"] for row in found]


@pytest.fixture
def reader(database: TestDatabase) -> Iterator[Reader]:
    with psycopg.Connection[dict[str, Any]].connect(database.app, autocommit=True, row_factory=dict_row) as made:
        yield Reader(made)


def test_all_that_properties_say_is_collected_and_not_what_they_are_called(superuser: Superuser) -> None:
    said = superuser.execute(
        "SELECT object_text(%s::jsonb) AS words, object_text('{}') AS none, "
        "length(object_text(jsonb_build_object('a', repeat('word ', 50000)))) AS bound",
        ('{"name": "Ada", "deep": {"list": ["one", {"two": 2, "yes": true, "no": null}], "far": {"x": "three"}}}',),
    ).fetchone()
    assert said is not None
    assert sorted(said["words"].split()) == ["2", "Ada", "one", "three"]
    assert (said["none"], said["bound"]) == ("", 100_000)


def test_objects_are_found_by_title_key_labels_and_properties_in_any_form(objects: Objects, reader: Reader) -> None:
    ada = objects.put("Ada Lovelace", key="ada", labels=["mathematician"], properties={"bio": "She wrote programs"})
    other = objects.put("Charles Babbage", properties={"built": ["engines", {"of": "brass"}]})
    assert reader.find("lovelace") == [ada]
    assert reader.find("mathematicians") == [ada]
    assert reader.find("programming") == [ada]
    assert reader.find("the brass engine") == [other]
    assert set(reader.find("wrote brass")) == {ada, other}
    assert reader.find("nobody knows this") == []


def test_the_rarer_word_counts_more_and_the_shorter_text_first(objects: Objects, reader: Reader) -> None:
    words = [objects.put(f"gizmo number {number}") for number in range(8)]
    rare = objects.put("gizmo zanzibar")
    long = objects.put("gizmo zanzibar", properties={"text": "filler " * 200})
    assert reader.find("gizmo zanzibar")[:2] == [rare, long]
    assert set(reader.find("gizmo")) <= {*words, rare, long}


def test_what_is_deleted_hidden_or_of_others_is_not_found(
    objects: Objects, reader: Reader, superuser: Superuser
) -> None:
    kept = objects.put("quagga one")
    gone = objects.put("quagga two")
    hidden = objects.put("quagga three")
    elsewhere = objects.put("quagga four", project="other")
    rival = Objects(superuser, tenant="rival").put("quagga five")
    superuser.execute("UPDATE graph_objects SET deleted_at = now() WHERE canonical_id = %s", (gone,))
    superuser.execute("UPDATE graph_objects SET suppression = 2 WHERE canonical_id = %s", (hidden,))
    assert reader.find("quagga") == [kept]
    assert reader.find("quagga", project="other") == [elsewhere]
    assert reader.find("quagga", tenant="rival") == [rival]
    counted = reader.ask("acme", "default", "SELECT count_documents('object', ARRAY['quagga'], 100) AS n")
    assert counted == [{"n": [1]}]


def test_what_belongs_to_no_project_is_found_in_each_by_its_words_as_written(objects: Objects, reader: Reader) -> None:
    shared = objects.put("Running the okapi", project=None)
    own = objects.put("Running another okapi")
    assert set(reader.find("okapi")) == {shared, own}
    assert reader.find("okapi", project="other") == [shared]
    assert set(reader.find("running okapi")) == {shared, own}
    assert reader.find("run the okapi", project="other") == [shared]
    assert reader.find("okapi", tenant="rival") == []


def test_statistics_count_objects_and_the_answer_stays_the_same(
    objects: Objects, reader: Reader, superuser: Superuser
) -> None:
    made = {objects.put(f"wombat {number}", properties={"n": number}) for number in range(70)}
    before = set(reader.find("wombat"))
    reader.ask("acme", "default", "SELECT refresh_lexicon('object', 64)")
    told = objects.one("SELECT documents, added FROM lexical_statistics WHERE kind = 'object'")
    live = objects.one(
        "SELECT count(*) AS n FROM graph_objects WHERE tenant_id = 'acme' AND deleted_at IS NULL AND suppression = 0 "
        "AND coalesce(project_id, 'default') = 'default'"
    )
    assert told == {"documents": live["n"], "added": 0}
    frequent = objects.one("SELECT documents FROM lexical_frequencies WHERE kind = 'object' AND term = 'wombat'")
    assert frequent["documents"] == 70
    assert set(reader.find("wombat")) == before <= made


def test_another_language_reads_heads_anew(objects: Objects, reader: Reader, superuser: Superuser) -> None:
    made = [objects.put(f"Häuser {number}", project="other", properties={"art": "gelaufen"}) for number in range(3)]
    mute = objects.put("Häuser im Verborgenen", project="other", type="Mute")
    superuser.execute("UPDATE graph_objects SET terms = '' WHERE canonical_id = %s", (mute,))
    superuser.execute(
        "INSERT INTO object_type_schemas (tenant_id, type, version, status, created_by, created_at, fts_enabled) "
        "VALUES ('acme', 'Mute', 1, 'active', 'x', now(), false)"
    )
    assert reader.find("haus", project="other") == []
    superuser.execute(
        """UPDATE projects SET settings = settings || '{"language": "german"}' WHERE project_id = 'other'"""
    )
    after, turns = "00000000-0000-0000-0000-000000000000", 0
    while after is not None:
        (row,) = reader.ask("acme", "other", "SELECT reindex_terms('object', %(after)s, 2)::text AS last", after=after)
        after, turns = row["last"], turns + 1
    assert turns > 2
    assert set(reader.find("Haus", project="other")) == set(made)
    assert reader.find("Verborgenen", project="other") == [], "its type is not found by words"


def test_without_a_scope_nothing_is_found(objects: Objects, database: TestDatabase) -> None:
    objects.put("numbat")
    with psycopg.connect(database.app) as connection:
        found = connection.execute(
            "SELECT * FROM match_objects(ARRAY['numbat'], ARRAY[1.0], ARRAY['numbat'], 1, 10, 10)"
        ).fetchall()
    assert found == []
