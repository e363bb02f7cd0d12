"""Build a card as Markdown from facts: pure, and deterministic for the same facts.

Names, values and sources are escaped, so that none can break out of its line, its cell or a prompt.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from app.prompt_text import inline
from app.retrieval.packing import BYTES_PER_TOKEN

CAP_TOKENS = 4000
MIN_CONFIDENCE = 0.3
OMITTED = "… {} lower-confidence facts omitted"
TABLE = (
    "## Facts\n\n| Relation | Value | Confidence | Source | Valid from | Since |\n"
    "| --- | --- | --- | --- | --- | --- |\n"
)

# The most bytes of each part, so that a few long ones leave space for the others.
NAME_BYTES = 600
KIND_BYTES = 100
ALIASES_BYTES = 1000
RELATION_BYTES = 200
VALUE_BYTES = 600
CLAIM_BYTES = 300
SOURCE_BYTES = 120
CONTRADICTIONS_BYTES = 4000
SOURCES_BYTES = 1500

# Characters that would end a cell, start markup, or make a link or an image.
MARKUP = re.compile(r"[\\|`<\[]")


class CardFact(msgspec.Struct, frozen=True, kw_only=True):
    """A current fact with one scope and owner, as the card shows it."""

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
    """Earlier facts that it is in an open conflict with."""


class CardEntity(msgspec.Struct, frozen=True, kw_only=True):
    """The entity that a card is about."""

    canonical: str
    kind: str | None
    aliases: list[str]


class BuiltCard(msgspec.Struct, frozen=True, kw_only=True):
    """The text of a card, how many facts it shows, and how many were omitted for lack of space."""

    content: str
    facts: int
    omitted: int


def build_card(
    entity: CardEntity, facts: Sequence[CardFact], *, use_trust: bool, cap_tokens: int = CAP_TOKENS
) -> BuiltCard | None:
    """Build a card of the facts with enough confidence (with `use_trust`, times trust); return None without any."""
    shown_facts = [fact for fact in facts if _weight(fact, use_trust) >= MIN_CONFIDENCE]
    if not shown_facts:
        return None
    opening = render_opening(entity)
    closing = _contradictions(facts, use_trust) + _sources(shown_facts)
    space = cap_tokens * BYTES_PER_TOKEN - _size(opening) - _size(closing)
    rows = _fitting_rows(shown_facts, space, _size(_omitted(len(shown_facts))))
    shown = sorted((fact for fact in shown_facts if fact.fact_id in rows), key=lambda fact: fact.fact_id)
    shown.sort(key=lambda fact: fact.hlc, reverse=True)
    shown.sort(key=lambda fact: fact.relation)
    omitted = len(shown_facts) - len(shown)
    content = opening + "".join(rows[fact.fact_id] for fact in shown) + closing + (_omitted(omitted) if omitted else "")
    return BuiltCard(content=content, facts=len(shown), omitted=omitted)


def render_opening(entity: CardEntity) -> str:
    """Return how a card of this entity begins; a stored card that begins differently was built with other names."""
    kind = f" ({_line(entity.kind, KIND_BYTES)})" if entity.kind else ""
    names = _join_fitting((_line(alias, NAME_BYTES) for alias in entity.aliases), "; ", ALIASES_BYTES, "{} more")
    also = f"Also known as: {names}\n\n" if names else ""
    return f"# {_line(entity.canonical, NAME_BYTES)}{kind}\n\n{also}{TABLE}"


def _weight(fact: CardFact, use_trust: bool) -> float:
    return fact.confidence * fact.source_trust if use_trust else fact.confidence


def _size(text: str) -> int:
    return len(text.encode())


def _omitted(count: int) -> str:
    return f"\n{OMITTED.format(count)}\n"


def _fitting_rows(facts: list[CardFact], space: int, reserve: int) -> dict[str, str]:
    """Return the rows of the facts of highest confidence that fit, the newer first of equal ones, by fact id."""
    ranked = sorted(facts, key=lambda fact: fact.fact_id)
    ranked.sort(key=lambda fact: (fact.confidence, fact.hlc), reverse=True)
    rows: dict[str, str] = {}
    for fact in ranked:
        rows[fact.fact_id] = _row(fact)
        space -= _size(rows[fact.fact_id])
        if space < 0:
            break
    else:
        return rows
    # Not all fit: the line that says how many are omitted needs space too.
    while rows and space < reserve:
        _, row = rows.popitem()
        space += _size(row)
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


def _contradictions(facts: Sequence[CardFact], use_trust: bool) -> str:
    """Return the section of conflicting pairs of which at least one fact is in the card; neither is preferred."""
    known = {fact.fact_id: fact for fact in facts}
    pairs = [
        (known[other], fact)
        for fact in facts
        for other in fact.against
        if other in known and max(_weight(fact, use_trust), _weight(known[other], use_trust)) >= MIN_CONFIDENCE
    ]
    pairs.sort(key=lambda pair: (pair[1].fact_id, pair[0].fact_id))
    pairs.sort(key=lambda pair: max(pair[0].confidence, pair[1].confidence), reverse=True)
    lines = (f"- {_line(one.relation, RELATION_BYTES)}: {_claim(one)} against {_claim(two)}" for one, two in pairs)
    text = _join_fitting(lines, "\n", CONTRADICTIONS_BYTES, "{} more contradictions")
    return f"\n## Contradictions\n\n{text}\n" if text else ""


def _claim(fact: CardFact) -> str:
    return f"{_line(fact.value, CLAIM_BYTES)} (confidence {_number(fact.confidence)})"


def _sources(facts: list[CardFact]) -> str:
    counts = Counter(fact.source or "" for fact in facts)
    lines = (
        f"- {_line(source, SOURCE_BYTES) or 'no source'}: {count} {'fact' if count == 1 else 'facts'}"
        for source, count in sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    )
    return f"\n## Sources\n\n{_join_fitting(lines, chr(10), SOURCES_BYTES, '{} more sources')}\n"


def _join_fitting(items: Iterable[str], between: str, limit: int, more: str) -> str:
    """Join as many items as fit into `limit` bytes, and say how many more there are."""
    found = [item for item in items if item]
    taken: list[str] = []
    space = limit - _size(f"{between}… {more.format(len(found))}")
    for item in found:
        space -= _size(item + between)
        if space < 0:
            break
        taken.append(item)
    left = len(found) - len(taken)
    return between.join([*taken, f"… {more.format(left)}"] if left else taken)


def _number(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".")


def _line(text: str, limit: int) -> str:
    """Return text on one line with markup escaped, cut to `limit` bytes."""
    flat = inline(text)
    escaped = MARKUP.sub(r"\\\g<0>", flat)
    if _size(escaped) <= limit:
        return escaped
    space = limit - _size("…")
    kept: list[str] = []
    for character in flat:
        piece = MARKUP.sub(r"\\\g<0>", character)
        space -= _size(piece)
        if space < 0:
            break
        kept.append(piece)
    return "".join(kept) + "…"
