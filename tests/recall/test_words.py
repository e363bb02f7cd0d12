"""Words are found however they are written: with accents or without, in wide forms, in scripts without spaces."""

from collections.abc import Callable

import pytest

from tests.recall.shared import LEXICAL, Superuser, World

NOTES = {
    "nurse": "山田花子さんは東京の病院で看護師として働いています。カレーと玉ねぎが好きです。",
    "palace": "张伟昨天去了故宫，喝了绿茶。",
    "seoul": "민수는 서울에서 김치찌개를 먹었다.",
    "thai": "สมชายชอบกินข้าวผัดที่กรุงเทพ",
    "jose": "José Núñez moved from Zürich to Łódź.",
    "cafe": "François sent his résumé from the café in the Köpenicker Straße.",
    "wide": "The part ＡＢＣ－９９９ is out of stock.",
    "greek": "Ο Οδυσσέας ζει στην Αθήνα. ΟΔΥΣΣΕΥΣ.",
    "russian": "Сергей пьёт зелёный чай на кухне.",
    "plain": "Nothing but plain letters, item ABC-1234.",
}  # fmt: skip


@pytest.fixture(scope="module")
def world(new_world: Callable[..., World]) -> World:
    return new_world()


@pytest.fixture(scope="module")
def written(world: World) -> dict[str, str]:
    return {world.note(text): name for name, text in NOTES.items()}


def hits(world: World, written: dict[str, str], query: str) -> list[str]:
    return [written[found] for found in world.found(query, weights=LEXICAL, include=["notes"])]


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("看護師", "nurse"),
        ("東京", "nurse"),
        ("山田花子", "nurse"),
        ("カレー", "nurse"),
        ("ｶﾚｰ", "nurse"),
        ("玉ねぎ", "nurse"),
        ("故宫", "palace"),
        ("茶", "palace"),
        ("张伟", "palace"),
        ("민수", "seoul"),
        ("김치찌개", "seoul"),
        ("สมชาย", "thai"),
        ("กรุงเทพ", "thai"),
        ("Jose Nunez", "jose"),
        ("José Núñez", "jose"),
        ("zurich", "jose"),
        ("Lodz", "jose"),
        ("Francois resume", "cafe"),
        ("cafe", "cafe"),
        ("strasse", "cafe"),
        ("ABC-999", "wide"),
        ("Αθηνα", "greek"),
        ("ΑΘΉΝΑ", "greek"),
        ("Οδυσσεύς", "greek"),
        ("зелёный чай", "russian"),
        ("кухне", "russian"),
        ("ABC-1234", "plain"),
    ],
)
def test_a_word_is_found_however_it_is_written(world: World, written: dict[str, str], query: str, name: str) -> None:
    assert hits(world, written, query)[:1] == [name]


def test_facts_and_names_are_found_so_too(world: World) -> None:
    fact = world.fact("田中太郎", "住所", "大阪市北区")
    other = world.fact("Søren Ångström", "lives in", "Malmö")
    assert world.found("大阪", weights=LEXICAL, include=["facts"])[:1] == [fact]
    assert world.found("Soren Angstrom", weights=LEXICAL, include=["facts"])[:1] == [other]


def test_other_words_of_such_scripts_find_nothing(world: World, written: dict[str, str]) -> None:
    assert hits(world, written, "北海道") == []


def test_folding_leaves_plain_text_as_it_is_and_keeps_letters_apart(superuser: Superuser) -> None:
    def folded(text: str, query: bool = False) -> str:
        row = superuser.execute("SELECT fold_words(%s, %s) AS folded", (text, query)).fetchone()
        assert row is not None
        return row["folded"]

    plain = "It's plain; a_b c-d."
    assert folded(plain) == plain
    assert folded("naïve Ærø œuvre ﬁne") == "naive AEro oeuvre fine"
    # Of a mark on a letter of another script another letter is made.
    assert folded("йод 가나 が").split()[0] == "йод"
    assert folded("東京都").split() == ["東", "東京", "京", "京都", "都"]
    assert folded("東京都 x 茶", query=True).split() == ["東京", "京都", "x", "茶"]
    assert folded("가나", query=True).split() == ["가나"]


def test_a_long_text_without_a_space_is_taken_and_found(world: World) -> None:
    text = "".join(chr(0x4E00 + n * 37 % 3000) for n in range(21_000))
    note = world.note(text)
    assert world.found(text[20_000:20_020], weights=LEXICAL, token_budget=100_000)[:1] == [note]


def test_what_was_not_read_anew_yet_is_found_as_it_is_written(new_world: Callable[..., World]) -> None:
    world = new_world()
    note = world.note("Le café de José est à Málaga.")
    world.superuser.execute(
        "UPDATE memory_notes SET terms = to_tsvector('english', content) WHERE tenant_id = %s", (world.tenant_id,)
    )
    assert world.found("café", weights=LEXICAL) == []
    world.superuser.execute(
        "INSERT INTO jobs (tenant_id, job_id, project_id, kind, payload, dedupe_key, created_by, available_at, "
        "created_at) VALUES (%s, gen_random_uuid(), 'default', 'reindex', '{}', 'reindex', 'schedule', 'infinity', "
        "now())",
        (world.tenant_id,),
    )
    assert world.found("café", weights=LEXICAL) == [note]
    assert world.found("José", weights=LEXICAL, include=["facts", "notes"]) == [note]
