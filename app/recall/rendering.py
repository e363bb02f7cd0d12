"""Results as text for a prompt."""

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal

import msgspec
from msgspec import UNSET

from app.facts.names import last_segment
from app.facts.schemas import FactRead
from app.recall.schemas import RecalledFact, RecalledNote

NOTHING = "null"


def value_text(fact: FactRead) -> str:
    """Return the object of a fact as text."""
    if fact.object.entity is not UNSET:
        return last_segment(fact.object.entity.canonical)
    value = fact.object.value
    if value is None or value is UNSET:
        return NOTHING
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, msgspec.Raw):
        # Without an exponent, with the digits as they were given.
        return format(Decimal(bytes(value).decode()), "f")
    return last_segment(str(value)) if fact.object.type == "ref" else str(value)


def day(moment: datetime) -> str:
    """Return the day in UTC, such as 8 May 2023."""
    there = moment.astimezone(UTC)
    return f"{there.day} {there:%B} {there.year}"


def render(results: Sequence[RecalledFact | RecalledNote], card: str | None) -> str:
    """Return results as lines, one each; white space is collapsed so that a result cannot look like two."""
    lines: list[str] = [] if card is None else [card.strip(), ""]
    for result in results:
        if isinstance(result, RecalledNote):
            line = f"{result.author or 'note'} ({day(result.occurred_at)}): {result.content}"
        else:
            doubt = ", contradicted" if result.contradicted else ""
            line = (
                f"{last_segment(result.entity)} {result.relation} {value_text(result)} "
                f"(confidence {result.confidence:.2f}, since {day(result.valid_from)}{doubt})"
            )
        lines.append("- " + " ".join(line.split()))
    return "\n".join(lines)
