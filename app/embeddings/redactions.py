"""Use cases of redaction: what of a text no provider gets to see."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from app.access import Principal, new_id
from app.audit import events as audit
from app.db.database import Database, Row
from app.db.scope import Scope
from app.embeddings import queries
from app.embeddings.schemas import RedactionCreate, RedactionCreated, RedactionList, RedactionRead
from app.errors import AppError, BadRequest, Conflict, Forbidden, NotFound
from app.paging import Page
from app.web.idempotency import Answer, Once

MAX_PATTERNS = 50
# As people and programs call secrets: api_key, apiKeys, AWS_SECRET_ACCESS_KEY, token_value; but no secretary, and
# nothing that is tokenised.
_NAME = r"(api[ _-]?key|secret(?!ar|i[ov]|ly)|secret( access)? key|token(?!i[sz][aem])|passw(or)?d)[\w-]*"
_QUOTED = r"""("([^"\\]|\\.)+"|'([^'\\]|\\.)+')"""
# In this order: what follows a word such as token may itself be two words, of which the second is the secret; and the
# last one would take away the names by which secrets are found in tables, and in contradictions as cards tell them.
BUILT_IN = (
    r"\mpk_[0-9a-f]{32}_[a-z0-9-]+",
    r"\mbearer\s+[a-z0-9._~+/=-]{8,}",
    rf"(?n)^\|[^|]*{_NAME}[^|]*\|([^|\\]|\\.)+",
    rf"(?n)^- .*{_NAME}.*: .*\(confidence .* against .*$",
    rf"""{_NAME}["']?\s*[:=]+>?\s*({_QUOTED}|\[[^]]*\]|\{{[^}}]*\}}|\S+)""",
)
_BACK_REFERENCE = re.compile(r"(?<!\\)(?:\\\\)*\\[1-9]")
# Long runs of the same, of words and of lines: what a slow pattern is slow on. To these come what the pattern is itself
# made of: it is slow where it nearly matches.
_PROBES = ("a", "1", " ", "-", "\n", "lorem ipsum 42 ", "Ab_0-c: 'd', \"e\" (f) [g] {h} | i/j\\k @l.m #n!\n")
_PROBE_CHARACTERS = 32_000
_OWN_PROBES = 8
# One that takes longer than this on all of them would hold up every batch.
_PROBE_SECONDS = 1.0
# Nobody waits longer for a text to be redacted.
REDACTION_SECONDS = 2.0


class RedactionSlow(AppError):
    """A text cannot be redacted in time, and so reaches no provider."""

    status = 503
    default_code = "redaction_timeout"

    def __init__(self) -> None:
        super().__init__(
            f"Redacting this text takes longer than {REDACTION_SECONDS:g} s, so it is sent to no provider; delete the "
            "slow pattern of the tenant (GET /v1/admin/redactions)."
        )


async def create_redaction(db: Database, who: Principal, *, data: RedactionCreate, once: Once) -> Answer:
    """Adds a pattern of the tenant; the same again is answered as it is."""
    _require_tenant(who)
    if _BACK_REFERENCE.search(data.pattern):
        raise BadRequest("pattern: back-references such as \\1 are not allowed; write out what is repeated.")
    row: Row = {
        "tenant_id": who.tenant_id,
        "pattern_id": new_id(),
        "pattern": data.pattern,
        "created_by": who.agent_id,
        "created_at": datetime.now(UTC),
    }
    # By itself: what the database cannot use would end the transaction of the answer too.
    async with db.tenant(who) as session:
        try:
            matches_nothing = await queries.try_pattern(
                session,
                pattern=data.pattern,
                units=_probes(data.pattern),
                characters=_PROBE_CHARACTERS,
                seconds=_PROBE_SECONDS,
            )
        except queries.PatternUnusable as problem:
            raise BadRequest(
                f"pattern: not a regular expression that PostgreSQL can use here ({problem}); see POSIX regular "
                "expressions in its manual."
            ) from problem
    if matches_nothing:
        raise BadRequest(
            "pattern: it matches where nothing is (an empty text, or a place between two characters), and would hide "
            "nothing there; ask for one character at least."
        )
    async with once.tenant(db, who) as step:
        if step.stored:
            return step.stored
        made, created = await queries.put_pattern(step.session, row=row)
        if created:
            if await queries.count_patterns(step.session, tenant_id=who.tenant_id) > MAX_PATTERNS:
                raise Conflict(
                    f"A tenant has at most {MAX_PATTERNS} patterns; delete one first.", code="redactions_full"
                )
            await audit.record(
                step.session,
                "admin_action",
                key_id=who.key_id,
                action="redaction_create",
                redaction_id=str(made["pattern_id"]),
            )
        body = RedactionCreated(redaction=_present(made), created=created)
        return await step.answer(201 if created else 200, body)


async def list_redactions(db: Database, who: Principal, *, page: Page) -> RedactionList:
    """Patterns of the tenant, oldest first."""
    after = None if page.after is None else page.after[0]
    found = await db.fetch(who, queries.select_patterns(tenant_id=who.tenant_id, after=after, limit=page.limit + 1))
    rows, next_cursor = page.cut(found, key=lambda row: [str(row["pattern_id"])])
    shown = [_present(row) for row in rows]
    return RedactionList(redactions=shown, built_in=list(BUILT_IN), next_cursor=next_cursor)


async def delete_redaction(db: Database, who: Principal, *, redaction_id: UUID) -> None:
    """Removes a pattern; what was embedded without its matches stays so."""
    _require_tenant(who)
    async with db.tenant(who) as session:
        if not await queries.delete_pattern(session, tenant_id=who.tenant_id, pattern_id=str(redaction_id)):
            raise NotFound("There is no such pattern.", code="redaction_not_found")
        await audit.record(
            session, "admin_action", key_id=who.key_id, action="redaction_delete", redaction_id=str(redaction_id)
        )


async def redacted(db: Database, tenant_id: str, texts: Sequence[str], *, characters: int | None = None) -> list[str]:
    """These texts as a provider may see them, in order, cut to so many characters where the tenant has patterns; raises
    RedactionSlow when that takes too long."""
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
        raise Forbidden("Patterns are the whole tenant's; use an admin key that is bound to no project.")


def _present(row: Row) -> RedactionRead:
    return RedactionRead(
        redaction_id=UUID(str(row["pattern_id"])),
        pattern=row["pattern"],
        created_by=row["created_by"],
        created_at=row["created_at"],
    )
