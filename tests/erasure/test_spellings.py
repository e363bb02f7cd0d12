"""Names are found, hidden and erased in every spelling that the API takes for the same name, and in no other."""

import sys
import unicodedata
from uuid import uuid4

import httpx
import psycopg
import pytest

from tests.conftest import TestDatabase
from tests.erasure.shared import revoke, tombstone, until_erased
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
UNLIKE = {
    "hyphen of a plain name": ("Jean-Luc {}", "Jean Luc {}"),
    "hyphen of a scheme": ("my-app:luc-{}", "my app:luc-{}"),
    "one word more": ("user:luc-{}", "user:jean-luc-{}x"),
    "other words in between": ("user:jean-luc-{}", "user:jean, luc-{}"),
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
