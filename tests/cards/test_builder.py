"""RECALL 20.4.2: what a card says, whatever the facts say."""

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from app.cards.builder import (
    CAP_TOKENS,
    MIN_CONFIDENCE,
    BuiltCard,
    CardEntity,
    CardFact,
    build_card,
    render_opening,
)
from app.retrieval.packing import count_tokens
from tests.cards.shared import section, table

ALICE = CardEntity(canonical="Alice", kind="person", aliases=["Al", "user:alice"])


def fact(number: int = 1, **fields: Any) -> CardFact:
    return CardFact(
        **{
            "fact_id": f"00000000-0000-0000-0000-{number:012}",
            "scope": "project_shared",
            "owner_key": "",
            "relation": "role",
            "value": f"value {number}",
            "confidence": 1.0,
            "source_trust": 1.0,
            "source": None,
            "hlc": f"{number:013}.000",
            "valid_from": "2026-01-01T00:00:00Z",
            "since": "2026-01-02T00:00:00Z",
            "against": [],
            **fields,
        }
    )


def build(*facts: CardFact, entity: CardEntity = ALICE, use_trust: bool = False, **fields: Any) -> BuiltCard:
    made = build_card(entity, facts, use_trust=use_trust, **fields)
    assert made is not None
    return made


def test_20_4_2_a_card_has_metadata_facts_contradictions_and_sources() -> None:
    made = build(
        fact(1, relation="role", value="CEO", confidence=0.9, source="hr"),
        fact(2, relation="role", value="CTO", confidence=0.75, source="chat", against=[fact(1).fact_id]),
        fact(3, relation="born in", value="Bern", source="hr"),
    )
    assert made.content == (
        "# Alice (person)\n"
        "\n"
        "Also known as: Al; user:alice\n"
        "\n"
        "## Facts\n"
        "\n"
        "| Relation | Value | Confidence | Source | Valid from | Since |\n"
        "| --- | --- | --- | --- | --- | --- |\n"
        "| born in | Bern | 1 | hr | 2026-01-01T00:00:00Z | 2026-01-02T00:00:00Z |\n"
        "| role | CTO | 0.75 | chat | 2026-01-01T00:00:00Z | 2026-01-02T00:00:00Z |\n"
        "| role | CEO | 0.9 | hr | 2026-01-01T00:00:00Z | 2026-01-02T00:00:00Z |\n"
        "\n"
        "## Contradictions\n"
        "\n"
        "- role: CEO (confidence 0.9) against CTO (confidence 0.75)\n"
        "\n"
        "## Sources\n"
        "\n"
        "- hr: 2 facts\n"
        "- chat: 1 fact\n"
    )
    assert (made.facts, made.omitted) == (3, 0)


def test_a_card_without_kind_aliases_and_sources_leaves_them_out() -> None:
    made = build(fact(), entity=CardEntity(canonical="Alice", kind=None, aliases=[]))
    assert made.content.startswith("# Alice\n\n## Facts\n")
    assert "Contradictions" not in made.content
    assert section(made.content, "Sources") == ["- no source: 1 fact"]


def test_20_4_2_facts_are_sorted_by_relation_and_the_latest_first() -> None:
    facts = [fact(number, relation=random.choice(["a", "b", "C", "ä"])) for number in range(1, 40)]
    rows = table(build(*facts).content)
    wanted = sorted(facts, key=lambda item: item.hlc, reverse=True)
    wanted.sort(key=lambda item: item.relation)
    assert [cells[:2] for cells in rows] == [[item.relation, item.value] for item in wanted]


def test_20_4_2_effective_confidence_decides_where_sources_are_judged() -> None:
    facts = [
        fact(1, confidence=0.3),
        fact(2, confidence=0.29),
        fact(3, confidence=1.0, source_trust=0.3),
        fact(4, confidence=0.9, source_trust=0.3),
        fact(5, confidence=0.6, source_trust=0.5),
    ]
    assert {cells[1] for cells in table(build(*facts).content)} == {f"value {n}" for n in (1, 3, 4, 5)}
    assert {cells[1] for cells in table(build(*facts, use_trust=True).content)} == {f"value {n}" for n in (1, 3, 5)}


def test_there_is_no_card_of_nothing() -> None:
    assert build_card(ALICE, [], use_trust=False) is None
    assert build_card(ALICE, [fact(confidence=0.2)], use_trust=False) is None
    assert build_card(ALICE, [fact(source_trust=0.2)], use_trust=True) is None


def test_20_4_2_a_contradiction_shows_the_weaker_side_too() -> None:
    weak = fact(2, value="CTO", confidence=0.1, against=[fact(1).fact_id])
    made = build(fact(1, value="CEO", confidence=0.8), weak)
    assert section(made.content, "Contradictions") == [
        "- role: CEO (confidence 0.8) against CTO (confidence 0.1)",
    ]
    assert (made.facts, made.omitted) == (1, 0)
    both_weak = build(fact(3), fact(1, confidence=0.1), fact(2, confidence=0.1, against=[fact(1).fact_id]))
    assert "Contradictions" not in both_weak.content
    # What is no longer live contradicts nothing now.
    assert "Contradictions" not in build(fact(2, against=[fact(1).fact_id])).content


def test_20_4_2_over_the_cap_the_surest_stay_and_the_rest_is_counted() -> None:
    facts = [fact(number, confidence=0.3 + 0.6 * number / 1000, value="x" * 60) for number in range(1000)]
    random.shuffle(facts)
    made = build(*facts)
    assert count_tokens(made.content) <= CAP_TOKENS
    assert made.omitted > 0
    assert made.facts + made.omitted == 1000
    assert made.content.endswith(f"\n… {made.omitted} lower-confidence facts omitted\n")
    shown = sorted((float(cells[2]) for cells in table(made.content)), reverse=True)
    wanted = sorted((item.confidence for item in facts), reverse=True)[: made.facts]
    assert shown == [round(confidence, 3) for confidence in wanted]
    # Not one more would have fitted.
    assert count_tokens(made.content) > CAP_TOKENS - 60
    assert section(made.content, "Sources")[0] == "- no source: 1000 facts"


def test_20_4_2_of_equally_sure_facts_the_newest_stay() -> None:
    facts = [fact(number, value="x" * 500) for number in range(1, 100)]
    made = build(*facts)
    assert made.omitted > 0
    newest = sorted(facts, key=lambda item: item.hlc, reverse=True)[: made.facts]
    assert len(table(made.content)) == len(newest)
    assert build(*newest).content.split("\n## Sources")[0] in made.content


def test_what_just_fits_is_not_cut_for_the_line_that_it_does_not_need() -> None:
    facts = [fact(number) for number in range(1, 50)]
    exact = count_tokens(build(*facts).content)
    made = build(*facts, cap_tokens=exact)
    assert (made.facts, made.omitted) == (49, 0)
    assert build(*facts, cap_tokens=exact - 1).omitted > 0


def test_a_name_cannot_leave_its_line_or_cell() -> None:
    nasty = "a|b\n## Sources\r\n| x | y |\u2028- z\\| `c` <img src=x> ![i](http://e.example/?q) \u202eright\x00"
    entity = CardEntity(canonical=nasty, kind=nasty, aliases=[nasty, "\n"])
    made = build(
        fact(1, relation=nasty, value=nasty, source=nasty),
        fact(2, relation=nasty, value=nasty * 2, source=nasty, against=[fact(1).fact_id]),
        entity=entity,
    )
    lines = made.content.split("\n")
    assert [line for line in made.content.splitlines() if line.startswith("#")] == [
        lines[0],
        "## Facts",
        "## Contradictions",
        "## Sources",
    ]
    assert made.content.splitlines() == lines[:-1]
    rows = table(made.content)
    assert len(rows) == 2
    # A table reader finds six cells, and no unescaped markup.
    for cells in rows:
        for cell in cells:
            plain = cell.replace("\\\\", "")
            for sign in "|<[`":
                assert sign not in plain.replace(f"\\{sign}", "")
    assert "\u202e" not in made.content


def test_a_long_value_leaves_room_for_others() -> None:
    made = build(fact(1, value="é|" * 40_000, source="s" * 5000), fact(2, value="short"))
    assert (made.facts, made.omitted) == (2, 0)
    (long, short) = sorted(table(made.content), key=lambda cells: -len(cells[1]))
    assert long[1].endswith("…")
    assert len(long[1].encode()) <= 600
    assert short[1] == "short"


def test_a_card_begins_with_the_names_of_its_entity() -> None:
    made = build(fact())
    assert made.content.startswith(render_opening(ALICE))
    for other in (
        CardEntity(canonical="Alice", kind=None, aliases=ALICE.aliases),
        CardEntity(canonical="Alice", kind="person", aliases=["Al"]),
        CardEntity(canonical="Alice", kind="person", aliases=[*ALICE.aliases, "Ally"]),
        CardEntity(canonical="Alice", kind="person", aliases=[]),
    ):
        assert not made.content.startswith(render_opening(other))


words = st.text(max_size=40) | st.sampled_from(["|", "\\", "\n", "…", "\\|", "# x", "𝒳" * 300])


@st.composite
def some_facts(draw: st.DrawFn) -> list[CardFact]:
    count = draw(st.integers(0, 60))
    relations = draw(st.lists(words, min_size=1, max_size=4))
    made: list[CardFact] = []
    for number in range(count):
        against = draw(st.lists(st.sampled_from([item.fact_id for item in made]), max_size=2)) if made else []
        made.append(
            fact(
                number,
                relation=draw(st.sampled_from(relations)),
                value=draw(words) * draw(st.sampled_from([1, 1, 1, 30])),
                confidence=draw(st.sampled_from([0.0, 0.1, 0.29, 0.3, 0.5, 0.97, 1.0])),
                source_trust=draw(st.sampled_from([0.0, 0.255, 0.5, 1.0])),
                source=draw(st.none() | words),
                hlc=f"{draw(st.integers(0, 5)):013}.000",
                against=sorted(set(against)),
            )
        )
    return made


@settings(max_examples=150, deadline=None)
@given(
    facts=some_facts(),
    entity=st.builds(CardEntity, canonical=words, kind=st.none() | words, aliases=st.lists(words, max_size=30)),
    use_trust=st.booleans(),
    cap=st.sampled_from([2500, 3000, CAP_TOKENS]),
    seed=st.integers(0, 1000),
)
def test_a_card_is_never_over_the_cap_counts_right_and_is_always_the_same(
    facts: list[CardFact], entity: CardEntity, use_trust: bool, cap: int, seed: int
) -> None:
    made = build_card(entity, facts, use_trust=use_trust, cap_tokens=cap)
    told = [item for item in facts if item.confidence * (item.source_trust if use_trust else 1) >= MIN_CONFIDENCE]
    if not told:
        assert made is None
        return
    assert made is not None
    assert count_tokens(made.content) <= cap
    rows = table(made.content)
    assert len(rows) == made.facts >= 1
    assert made.facts + made.omitted == len(told)
    assert made.content.endswith(f"\n… {made.omitted} lower-confidence facts omitted\n") == (made.omitted > 0)
    # No fact that is left out is surer than one that is in.
    shown = sorted((float(cells[2]) for cells in rows), reverse=True)
    ranked = sorted((item.confidence for item in told), reverse=True)
    assert shown == [round(confidence, 3) for confidence in ranked[: made.facts]]
    shuffled = list(facts)
    random.Random(seed).shuffle(shuffled)
    assert build_card(entity, shuffled, use_trust=use_trust, cap_tokens=cap) == made
