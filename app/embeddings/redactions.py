"""Use cases of redaction: patterns whose matches are not sent to any provider."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from app.access import Principal, new_id
from app.audit import events as audit
from app.db.counts import COUNT_LIMIT
from app.db.database import Database, Row, Session
from app.db.scope import Scope
from app.embeddings import queries
from app.embeddings.schemas import RedactionCreate, RedactionCreated, RedactionList, RedactionRead
from app.errors import AppError, BadRequest, Conflict, Forbidden, NotFound
from app.outcomes import Outcome
from app.paging import Page

MAX_PATTERNS = 50
# Names of secrets, such as api_key, apiKeys, AWS_SECRET_ACCESS_KEY, token_value; but not secretary or tokenised.
_NAME = r"(api[ _-]?key|secret(?!ar|i[ov]|ly)|secret( access)? key|token(?!i[sz][aem])|passw(or)?d)[\w-]*"
_QUOTED = r"""("([^"\\]|\\.)+"|'([^'\\]|\\.)+')"""
# The order matters: after a word such as token, two words may follow of which the second is the secret; and the last
# pattern would remove the names by which secrets are found in the tables and contradictions of cards.
BUILT_IN = (
    r"\mpk_[0-9a-f]{32}_[a-z0-9-]+",
    r"\mbearer\s+[a-z0-9._~+/=-]{8,}",
    rf"(?n)^\|[^|]*{_NAME}[^|]*\|([^|\\]|\\.)+",
    rf"(?n)^- .*{_NAME}.*: .*\(confidence .* against .*$",
    rf"""{_NAME}["']?\s*[:=]+>?\s*({_QUOTED}|\[[^]]*\]|\{{[^}}]*\}}|\S+)""",
)
_BACK_REFERENCE = re.compile(r"(?<!\\)(?:\\\\)*\\[1-9]")
# Long repetitions, on which slow patterns are slow. The pattern's own characters are added: it is slowest where it
# nearly matches.
_PROBES = ("a", "1", " ", "-", "\n", "lorem ipsum 42 ", "Ab_0-c: 'd', \"e\" (f) [g] {h} | i/j\\k @l.m #n!\n")
_PROBE_CHARACTERS = 32_000
_OWN_PROBES = 8
# A pattern that takes longer on all probes would delay every batch.
_PROBE_SECONDS = 1.0
# The time limit for redacting one text.
REDACTION_SECONDS = 2.0


class RedactionSlow(AppError):
    """A text could not be redacted in time, so it is not sent to a provider."""

    status = 503
    default_code = "redaction_timeout"

    def __init__(self) -> None:
        super().__init__(
            f"Redacting this text takes longer than {REDACTION_SECONDS:g} s, so it is not sent to a provider; delete "
            "the slow pattern of the tenant (GET /v1/admin/redactions)."
        )


async def check_pattern(db: Database, who: Principal, *, pattern: str) -> None:
    """Raise BadRequest unless a pattern is valid, fast, and matches at least one character."""
    _require_tenant(who)
    if _BACK_REFERENCE.search(pattern):
        raise BadRequest("pattern: back-references such as \\1 are not allowed; write out what is repeated.")
    # In a transaction of its own, which an invalid pattern ends.
    async with db.tenant(who) as session:
        try:
            matches_empty = await queries.try_pattern(
                session,
                pattern=pattern,
                units=_probes(pattern),
                characters=_PROBE_CHARACTERS,
                seconds=_PROBE_SECONDS,
            )
        except queries.PatternUnusable as problem:
            raise BadRequest(
                f"pattern: not a regular expression that PostgreSQL can use here ({problem}); see POSIX regular "
                "expressions in its manual."
            ) from problem
    if matches_empty:
        raise BadRequest(
            "pattern: it matches the empty string (in an empty text, or between two characters), where there is "
            "nothing to redact; require at least one character."
        )


async def create_redaction(session: Session, who: Principal, *, data: RedactionCreate) -> Outcome[RedactionCreated]:
    """Add a checked pattern to the tenant, or return the existing one; raise Conflict when the tenant has too many."""
    row: Row = {
        "tenant_id": who.tenant_id,
        "pattern_id": new_id(),
        "pattern": data.pattern,
        "created_by": who.agent_id,
        "created_at": datetime.now(UTC),
    }
    stored, created = await queries.put_pattern(session, row=row)
    if created:
        if await queries.count_patterns(session, tenant_id=who.tenant_id) > MAX_PATTERNS:
            raise Conflict(f"A tenant has at most {MAX_PATTERNS} patterns; delete one first.", code="redactions_full")
        await audit.record(
            session,
            "admin_action",
            key_id=who.key_id,
            action="redaction_create",
            redaction_id=str(stored["pattern_id"]),
        )
    return Outcome(RedactionCreated(redaction=_present(stored), created=created), created=created)


async def list_redactions(db: Database, who: Principal, *, page: Page) -> RedactionList:
    """Return the patterns of the tenant, oldest first."""
    after = None if page.after is None else page.after[0]
    found = await db.fetch(who, queries.select_patterns(tenant_id=who.tenant_id, after=after, limit=page.limit + 1))
    rows, next_cursor = page.cut(found, key=lambda row: [str(row["pattern_id"])])
    shown = [_present(row) for row in rows]
    every = queries.select_patterns(tenant_id=who.tenant_id, after=None, limit=COUNT_LIMIT)
    total = await page.count_rows(db, who, every)
    return RedactionList(redactions=shown, built_in=list(BUILT_IN), next_cursor=next_cursor, total=total)


async def delete_redaction(db: Database, who: Principal, *, redaction_id: UUID) -> None:
    """Remove a pattern or raise NotFound; existing vectors stay as they are."""
    _require_tenant(who)
    async with db.tenant(who) as session:
        if not await queries.delete_pattern(session, tenant_id=who.tenant_id, pattern_id=str(redaction_id)):
            raise NotFound("There is no such pattern.", code="redaction_not_found")
        await audit.record(
            session, "admin_action", key_id=who.key_id, action="redaction_delete", redaction_id=str(redaction_id)
        )


async def redacted(db: Database, tenant_id: str, texts: Sequence[str], *, characters: int | None = None) -> list[str]:
    """Return these texts redacted, cut to `characters` where the tenant has patterns; raise RedactionSlow when late."""
    params: Row = {"tenant": tenant_id, "texts": list(texts), "patterns": list(BUILT_IN), "characters": characters}
    try:
        async with db.tenant(Scope(tenant_id=tenant_id)) as session:
            rows = await queries.rows_within(session, queries.REDACTED, params, seconds=REDACTION_SECONDS)
    except queries.TooSlow as problem:
        raise RedactionSlow from problem
    return [row["words"] for row in rows]


def _probes(pattern: str) -> list[str]:
    own = [character for character in dict.fromkeys(pattern) if character not in _PROBES][:_OWN_PROBES]
    words = re.sub(r"\\.|\W+", " ", pattern).strip()
    return [*_PROBES, *own, f"{words} "]


def _require_tenant(who: Principal) -> None:
    if who.key_project is not None:
        raise Forbidden("Patterns apply to the whole tenant; use an admin key that is not bound to a project.")


def _present(row: Row) -> RedactionRead:
    return RedactionRead(
        redaction_id=UUID(str(row["pattern_id"])),
        pattern=row["pattern"],
        created_by=row["created_by"],
        created_at=row["created_at"],
    )
