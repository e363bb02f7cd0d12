"""A card as Markdown, from facts: pure, and always the same for the same facts.

Whatever names, values and sources say, each stays within its line and cell.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

CAP_TOKENS = 4000
BYTES_PER_TOKEN = 4
MIN_CONFIDENCE = 0.3
OMITTED = "… {} lower-confidence facts omitted"
TABLE = (
    "## Facts\n\n| Relation | Value | Confidence | Source | Valid from | Since |\n"
    "| --- | --- | --- | --- | --- | --- |\n"
)

# How many bytes each may take, so that a few long ones leave room for the others; the facts themselves have the whole.
NAME_BYTES = 600
KIND_BYTES = 100
ALIASES_BYTES = 1000
RELATION_BYTES = 200
VALUE_BYTES = 600
CLAIM_BYTES = 300
SOURCE_BYTES = 120
CONTRADICTIONS_BYTES = 4000
SOURCES_BYTES = 1500

# Line ends and other control characters, and those that turn the direction of what follows.
UNPRINTED = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
# What would end a cell, begin markup, or make a link or an image.
MARKUP = re.compile(r"[\\|`<\[]")


class CardFact(msgspec.Struct, frozen=True, kw_only=True):
    """A live fact of one place, as the card needs it."""

    fact_id: str
    scope: str
    owner_key: str
    relation: str
    value: str
    confidence: float
    source_trust: float
    source: str | None
    hlc: str
    valid_from: str
    since: str
    against: list[str]
    """Earlier facts it is in an open conflict with."""


class CardEntity(msgspec.Struct, frozen=True, kw_only=True):
    """Whom a card is about."""

    canonical: str
    kind: str | None
    aliases: list[str]


class Built(msgspec.Struct, frozen=True, kw_only=True):
    """A card that was made: its text, how many facts it shows, and how many there was no room for."""

    content: str
    facts: int
    omitted: int


def count_tokens(text: str) -> int:
    """How many tokens a text is taken for."""
    return -(-len(text.encode()) // BYTES_PER_TOKEN)


def build_card(
    entity: CardEntity, facts: Sequence[CardFact], *, judged: bool, cap_tokens: int = CAP_TOKENS
) -> Built | None:
    """A card of all facts that are sure enough (`judged`: and trusted enough); None when there are none."""
    told = [fact for fact in facts if _weight(fact, judged) >= MIN_CONFIDENCE]
    if not told:
        return None
    opening = render_opening(entity)
    closing = _contradictions(facts, judged) + _sources(told)
    room = cap_tokens * BYTES_PER_TOKEN - _size(opening) - _size(closing)
    rows = _fitting(told, room, _size(_omitted(len(told))))
    shown = sorted((fact for fact in told if fact.fact_id in rows), key=lambda fact: fact.fact_id)
    shown.sort(key=lambda fact: fact.hlc, reverse=True)
    shown.sort(key=lambda fact: fact.relation)
    omitted = len(told) - len(shown)
    content = opening + "".join(rows[fact.fact_id] for fact in shown) + closing + (_omitted(omitted) if omitted else "")
    return Built(content=content, facts=len(shown), omitted=omitted)


def render_opening(entity: CardEntity) -> str:
    """How a card of this entity begins: a card that begins otherwise was made when it had other names."""
    kind = f" ({_line(entity.kind, KIND_BYTES)})" if entity.kind else ""
    names = _listed((_line(alias, NAME_BYTES) for alias in entity.aliases), "; ", ALIASES_BYTES, "{} more")
    also = f"Also known as: {names}\n\n" if names else ""
    return f"# {_line(entity.canonical, NAME_BYTES)}{kind}\n\n{also}{TABLE}"


def _weight(fact: CardFact, judged: bool) -> float:
    return fact.confidence * fact.source_trust if judged else fact.confidence


def _size(text: str) -> int:
    return len(text.encode())


def _omitted(count: int) -> str:
    return f"\n{OMITTED.format(count)}\n"


def _fitting(told: list[CardFact], room: int, reserve: int) -> dict[str, str]:
    """The rows of the surest facts there is room for, the newer of equally sure ones first; of the others none."""
    ranked = sorted(told, key=lambda fact: fact.fact_id)
    ranked.sort(key=lambda fact: (fact.confidence, fact.hlc), reverse=True)
    rows: dict[str, str] = {}
    for fact in ranked:
        rows[fact.fact_id] = _row(fact)
        room -= _size(rows[fact.fact_id])
        if room < 0:
            break
    else:
        return rows
    # Not all of them: then it says how many are missing, which takes room too.
    while rows and room < reserve:
        _, row = rows.popitem()
        room += _size(row)
    return rows


def _row(fact: CardFact) -> str:
    cells = (
        _line(fact.relation, RELATION_BYTES),
        _line(fact.value, VALUE_BYTES),
        _number(fact.confidence),
        _line(fact.source or "", SOURCE_BYTES),
        fact.valid_from,
        fact.since,
    )
    return f"| {' | '.join(cells)} |\n"


def _contradictions(facts: Sequence[CardFact], judged: bool) -> str:
    """Pairs that cannot both hold, one of them at least in the card; both are told, neither is preferred."""
    known = {fact.fact_id: fact for fact in facts}
    pairs = [
        (known[other], fact)
        for fact in facts
        for other in fact.against
        if other in known and max(_weight(fact, judged), _weight(known[other], judged)) >= MIN_CONFIDENCE
    ]
    pairs.sort(key=lambda pair: (pair[1].fact_id, pair[0].fact_id))
    pairs.sort(key=lambda pair: max(pair[0].confidence, pair[1].confidence), reverse=True)
    lines = (f"- {_line(one.relation, RELATION_BYTES)}: {_claim(one)} against {_claim(two)}" for one, two in pairs)
    text = _listed(lines, "\n", CONTRADICTIONS_BYTES, "{} more contradictions")
    return f"\n## Contradictions\n\n{text}\n" if text else ""


def _claim(fact: CardFact) -> str:
    return f"{_line(fact.value, CLAIM_BYTES)} (confidence {_number(fact.confidence)})"


def _sources(told: list[CardFact]) -> str:
    counts = Counter(fact.source or "" for fact in told)
    lines = (
        f"- {_line(source, SOURCE_BYTES) or 'no source'}: {count} {'fact' if count == 1 else 'facts'}"
        for source, count in sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    )
    return f"\n## Sources\n\n{_listed(lines, chr(10), SOURCES_BYTES, '{} more sources')}\n"


def _listed(items: Iterable[str], between: str, limit: int, more: str) -> str:
    """Items in a row, as many as there is room for, and how many more there are."""
    found = [item for item in items if item]
    taken: list[str] = []
    room = limit - _size(f"{between}… {more.format(len(found))}")
    for item in found:
        room -= _size(item + between)
        if room < 0:
            break
        taken.append(item)
    left = len(found) - len(taken)
    return between.join([*taken, f"… {more.format(left)}"] if left else taken)


def _number(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".")


def _line(text: str, limit: int) -> str:
    """Words on one line, without markup of their own, cut where they take too much room."""
    flat = " ".join(UNPRINTED.sub(" ", text).split())
    escaped = MARKUP.sub(r"\\\g<0>", flat)
    if _size(escaped) <= limit:
        return escaped
    room = limit - _size("…")
    kept: list[str] = []
    for character in flat:
        piece = MARKUP.sub(r"\\\g<0>", character)
        room -= _size(piece)
        if room < 0:
            break
        kept.append(piece)
    return "".join(kept) + "…"
