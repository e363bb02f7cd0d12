"""Names are found, hidden and erased in every spelling that the API takes for the same name, and in no other."""

import sys
import unicodedata
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest

from tests.conftest import TestDatabase
from tests.erasure.shared import issued, revoke, tombstone, until_erased
from tests.facts.shared import entity, error, fact, new, note

# A name, and another way to write it; {} is a mark of the test.
SPELLINGS = {
    "hyphen of a URI": ("user:Alice Smith {}", "user:Alice Smith {}"),
    "as it is stored": ("user:Alice Smith {}", "USER:alice-smith-{}"),
    "white space of all kinds": ("user:Alice Smith {}", "user:Alice\n\u2003Smith {}"),
    "hyphen between white space": ("user:Alice - Smith {}", "user:Alice - Smith {}"),
    "address": ("https://ex.org/People/Al Bo {}", "https://ex.org/People/Al Bo {}"),
    "address with its white space spelled out": (
        "https://ex.org/People/Al Bo {}",
        "https://ex.org/People/Al%20Bo%20{}",
    ),
    "capitals of a final sigma": ("Οδυσσεύς {}", "ΟΔΥΣΣΕΎΣ {}"),
    "final sigma of capitals": ("ΟΔΥΣΣΕΎΣ {}", "Οδυσσεύς {}"),
    "capital with a dot": ("i\u0307pek {}", "İPEK {}"),
    "controls between words": ("Anna Lee {}", "Anna\x1cLee {}"),
}
# As SPELLINGS, but other names for the API: search finds them, so forgetting does.
FOUND_BY_SEARCH = {
    "width": ("Yolanda Brix{}", "ＹＯＬＡＮＤＡ ＢＲＩＸ{}"),
    "accents": ("Yolanda Brix{}", "Yolándá Brix{}"),
    "accents of the name": ("Yolándá Brix{}", "yolanda brix{}"),
    "letters that imitate others": ("Yolanda Brix{}", "Y\u043el\u0430nd\u0430 Brix{}"),
    "zero width": ("Yolanda Brix{}", "Yo\u200bland\u00ada Brix{}\u2060"),
    "underscore": ("Yolanda Brix{}", "yolanda_brix{}"),
    "hyphen": ("Yolanda Brix{}", "Yolanda-Brix{}"),
    "hyphen of a plain name": ("Jean-Luc {}", "Jean Luc {}"),
    "dash": ("Yolanda Brix{}", "Yolanda\u2013Brix{}"),
    "surname first": ("Yolanda Brix{}", "Brix{}, Yolanda"),
    "surname first in the name": ("Brix{}, Yolanda", "Yolanda Brix{}"),
    "address of mail": ("Yolanda Brix{}", "yolanda.brix{}@example.org"),
    "address of a page": ("Yolanda Brix{}", "https://example.org/people/yolanda-brix{}/photo.png"),
    "ligature": ("Æmilia Strauß {}", "aemilia strauss {}"),
    "no space in Chinese": ("王 小明{}", "王小明{}"),
    "space in Chinese": ("王小明{}", "王 小明{}"),
}
UNLIKE = {
    "one word more": ("user:luc-{}", "user:jean-luc-{}x"),
    "other words in between": ("user:jean-luc-{}", "user:jean, luc-{}"),
    "part of a longer word": ("Yolanda Brix{}", "Yolanda Brix{}x"),
    "one of two words": ("Yolanda Brix{}", "Yolanda {}"),
    "in a list": ("Yolanda Brix{}", "Yolanda, Brix{}"),
}
POSSIBLE = {
    "initial in between": ("Yolanda Brix{}", "Yolanda M. Brix{}"),
    "initial of a middle name": ("Yolanda Maria Brix{}", "Yolanda M. Brix{}"),
    "other words in between": ("Yolanda Brix{}", "Yolanda, born as Brix{}"),
    "the other order without a comma": ("Yolanda Brix{}", "brix{}_yolanda"),
}


@pytest.mark.parametrize("case", SPELLINGS)
def test_what_names_it_in_another_spelling_is_hidden_and_erased(
    case: str, robin: httpx.Client, admin: httpx.Client, worker: None
) -> None:
    mark = uuid4().hex[:10]
    name, other = (form.format(mark) for form in SPELLINGS[case])
    entity(robin, name)
    if "%20" not in other:
        assert robin.post("/v1/entities", json={"canonical": other}).status_code == 200, "or it is another name"
    told = note(robin, content=f"Yesterday {other} bought a kayak")
    once = note(robin, content=f"a note {mark}x", author=other)
    assert robin.patch(f"/v1/notes/{once}", json={"author": "nobody", "reason": "tact"}).status_code == 200
    said = fact(robin, new("Bob"), new("says"), f"{other} is kind")["fact_id"]
    paths = [f"/v1/notes/{told}", f"/v1/notes/{once}", f"/v1/facts/{said}"]
    revoke(admin, made := tombstone(admin, name, reason=f"{other} asked"))
    assert [robin.get(path).status_code for path in paths] == [200, 200, 200]
    made = tombstone(admin, name, erase=True, grace_seconds=1)
    assert [robin.get(path).status_code for path in paths] == [404, 404, 404]
    receipt = until_erased(admin, made)["receipt"]
    assert (receipt["destroyed"]["memory_notes"], receipt["destroyed"]["graph_facts"]) == (2, 1)
    assert receipt["names_left"] == []


def mark_of_letters() -> str:
    return "".join(chr(ord("a") + int(digit, 16)) for digit in uuid4().hex[:10])


def recalled(client: httpx.Client, query: str) -> set[str]:
    answer = client.post("/v1/recall", json={"query": query})
    assert answer.status_code == 200, answer.text
    return {item["note_id"] for item in answer.json()["results"] if item["kind"] == "note"}


def test_what_recall_finds_by_a_name_is_forgotten(robin: httpx.Client, admin: httpx.Client, worker: None) -> None:
    made: list[dict[str, Any]] = []
    told: dict[str, list[str]] = {}
    for case, (form, other_form) in FOUND_BY_SEARCH.items():
        mark = mark_of_letters()
        name, other = form.format(mark), other_form.format(mark)
        entity(robin, name)
        notes = [note(robin, content=f"Yesterday {other} bought a kayak"), note(robin, author=other)]
        said = fact(robin, new("Bob"), new("says"), f"{other} is kind")["fact_id"]
        assert notes[0] in recalled(robin, name), case
        answer = issued(admin, entity=name, erase=True)
        assert (case, answer["hidden"]["notes"], answer["hidden"]["facts"]) == (case, 2, 1)
        assert answer["possible_notes"] == []
        assert not recalled(robin, name) & set(notes), case
        assert error(robin.get(f"/v1/facts/{said}"))[0] == 404, case
        made.append(answer["tombstone"])
        told[case] = notes
    for (case, notes), hidden in zip(told.items(), made, strict=True):
        receipt = until_erased(admin, hidden)["receipt"]
        assert (case, receipt["destroyed"]["memory_notes"]) == (case, 2)
        # A trace of recall may be written after the erasure.
        left = [entry for entry in receipt["names_left"] if entry["table"] != "recall_traces"]
        assert (case, left, receipt["possibly_about"]) == (case, [], [])
        assert all(robin.get(f"/v1/notes/{one}").status_code == 404 for one in notes), case


@pytest.mark.parametrize("case", POSSIBLE)
def test_what_is_only_possible_is_listed_and_stays(
    case: str, robin: httpx.Client, admin: httpx.Client, worker: None
) -> None:
    mark = mark_of_letters()
    name, other = (form.format(mark) for form in POSSIBLE[case])
    told = note(robin, content=f"Yesterday {other} bought a kayak")
    made = issued(admin, entity=name, erase=True)
    assert (made["hidden"]["notes"], made["possible_notes"]) == (0, [told])
    receipt = until_erased(admin, made["tombstone"])["receipt"]
    assert [told] in [entry["ids"] for entry in receipt["possibly_about"] if entry["column"] == "content"]
    assert robin.get(f"/v1/notes/{told}").status_code == 200


def test_the_receipt_lists_names_in_every_table(robin: httpx.Client, admin: httpx.Client, worker: None) -> None:
    mark = mark_of_letters()
    name, slug = f"Yolanda Brix{mark}", f"yolanda-brix{mark}"
    answer = admin.post("/v1/gardens", json={"slug": slug, "name": f"of Brix{mark}, Yolanda"})
    assert answer.status_code == 201, answer.text
    garden = answer.json()["garden"]["garden_id"]
    entity(robin, f"house of {name}")
    receipt = until_erased(admin, tombstone(admin, name, erase=True))["receipt"]
    left = {(entry["table"], entry["column"]): entry["ids"] for entry in receipt["names_left"]}
    assert left["gardens", "slug"] == left["gardens", "name"] == [garden]
    assert len(left["graph_entities", "canonical"]) == 1


def test_a_name_that_search_ignores_hides_only_what_is_linked(robin: httpx.Client, admin: httpx.Client) -> None:
    told = note(robin, content=f"Will they come? They will {uuid4().hex}")
    written = note(robin, author="Will")
    made = issued(admin, entity="Will")
    assert told in made["possible_notes"]
    assert robin.get(f"/v1/notes/{told}").status_code == 200
    assert error(robin.get(f"/v1/notes/{written}")) == (404, "note_not_found")
    revoke(admin, made["tombstone"])


@pytest.mark.parametrize("case", UNLIKE)
def test_what_only_looks_like_it_stays(case: str, robin: httpx.Client, admin: httpx.Client) -> None:
    mark = uuid4().hex[:10]
    name, other = (form.format(mark) for form in UNLIKE[case])
    entity(robin, name)
    told = note(robin, content=f"Yesterday {other} bought a kayak")
    tombstone(admin, name)
    assert robin.get(f"/v1/notes/{told}").status_code == 200


def test_a_note_in_other_letters_is_kept_by_a_hold(robin: httpx.Client, admin: httpx.Client) -> None:
    name = new("Αίας")
    entity(robin, name)
    told = note(robin, content=f"we met {name.upper()}")
    tombstone(admin, name, legal_hold=True)
    assert error(robin.get(f"/v1/notes/{told}")) == (404, "note_not_found")


def test_every_letter_is_found_whatever_case_it_is_written_in(database: TestDatabase) -> None:
    letters = [chr(code) for code in range(1, sys.maxunicode) if unicodedata.category(chr(code)) in ("Lu", "Lt", "Ll")]
    small = [unicodedata.normalize("NFC", letter.lower()) for letter in letters]
    with psycopg.connect(database.superuser) as connection:
        apart = connection.execute(
            "SELECT a, b FROM unnest(%s::text[], %s::text[]) t(a, b) WHERE fold_name(a) <> fold_name(b)",
            (letters, small),
        ).fetchall()
    assert apart == []
