"""One call for a prompt: what is known of the user, what fits the query, and the last turns of the conversation."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Literal, TypeVar

from app.access import Principal, require_project
from app.db.database import Database
from app.db.scope import EVERY_USER
from app.documents import service as documents
from app.errors import BadRequest
from app.facts.schemas import FactRead
from app.notes import service as notes
from app.notes.schemas import NoteRead
from app.paging import CursorSigner
from app.prompt_text import fence, inline, quote_name
from app.recall import service as recall
from app.recall.dependencies import RecallDependencies
from app.recall.rendering import EXPLANATION, TAG, render_result
from app.recall.schemas import MAX_QUERY, RecallAsk, RecalledFact, RecalledNote, RecallRead
from app.retrieval.packing import count_tokens
from app.users import queries
from app.users.schemas import ContextAsk, ContextRead, ContextUsed, Message
from app.users.service import profile_line, read_profile

MAX_TURNS = 50
# Without a query, this many of the last turns are one.
QUERY_TURNS = 3
# The most that turns and profile may take of the budget; recall has the rest.
TURNS_SHARE = 0.4
PROFILE_SHARE = 0.3
T = TypeVar("T")
HEADINGS = ("About the user", "What is remembered", "The conversation so far")


async def build_context(
    db: Database, who: Principal, *, ask: ContextAsk, dependencies: RecallDependencies, signer: CursorSigner
) -> ContextRead:
    """Return what a prompt is to be told, each thing once and within the budget; stable parts come first."""
    turns, profile = await asyncio.gather(_last_turns(db, who, ask), _profile(db, who, signer))
    query = ask.query or "\n".join(turn.content for turn in turns[-QUERY_TURNS:])[-MAX_QUERY:]
    if not query.strip():
        raise BadRequest("query: required, since the thread has no turns to look for.", code="invalid_query")
    turns = _newest(turns, _turn_line, int(ask.token_budget * TURNS_SHARE))
    # Of the profile the newest facts are kept, and shown in the order in which they came, which changes least.
    profile = _newest(profile, profile_line, int(ask.token_budget * PROFILE_SHARE))
    space = ask.token_budget - _tokens(map(_turn_line, turns)) - _tokens(map(profile_line, profile)) - _FRAME
    found = await recall.recall(
        db, who, ask=RecallAsk(query=query, token_budget=max(space, 1)), dependencies=dependencies
    )
    shown = {turn.note_id for turn in turns} | {fact.fact_id for fact in profile}
    results = [result for result in found.results if result.id not in shown]
    titles = await documents.find_titles(
        db, who, threads={result.thread_id for result in results if isinstance(result, RecalledNote)}
    )
    lines = [render_result(result, titles) for result in results]
    while lines and _tokens(lines) > space:
        # Escaping or a long name made a result longer than its share.
        lines.pop()
    return _present(ask, found, turns, profile, results[: len(lines)], lines)


async def _last_turns(db: Database, who: Principal, ask: ContextAsk) -> list[NoteRead]:
    """Return the last turns of the thread, the last one at the end."""
    if ask.thread_id is None or "notes:read" not in who.scopes:
        return []
    params = {
        "tenant": who.tenant_id,
        "project": require_project(who),
        "thread": ask.thread_id,
        "user": who.owner_user,
        "limit": MAX_TURNS,
    }
    ids = [str(row["note_id"]) for row in await db.query(who, queries.LAST_TURNS, params)]
    found = {str(note.note_id): note for note in await notes.read_notes(db, who, ids=ids)}
    return [found[note_id] for note_id in reversed(ids) if note_id in found]


async def _profile(db: Database, who: Principal, signer: CursorSigner) -> list[FactRead]:
    """Return the facts of the user, the newest at the end; none without a user."""
    return [] if who.user_id == EVERY_USER else (await read_profile(db, who, signer=signer))[::-1]


def _newest(items: list[T], show: Callable[[T], str], budget: int) -> list[T]:
    """Return as many of the last items as fit."""
    kept: list[T] = []
    for item in reversed(items):
        budget -= count_tokens(show(item) + "\n")
        if budget < 0:
            break
        kept.append(item)
    return kept[::-1]


def _tokens(lines: Iterable[str]) -> int:
    return sum(count_tokens(line + "\n") for line in lines)


def _turn_line(turn: NoteRead) -> str:
    return f"- {quote_name(turn.author) if turn.author else 'Somebody'} said: {inline(turn.content)}"


def _block(parts: list[list[str]], *, markdown: bool) -> str:
    """Return the parts that have lines, each below its heading, in a frame that says that they are data."""
    mark = "## " if markdown else ""
    shown = ["\n".join([f"{mark}{heading}", *lines]) for heading, lines in zip(HEADINGS, parts, strict=False) if lines]
    return fence(TAG, "\n".join([EXPLANATION, *shown])) if shown else ""


# What the frame and the headings take.
_FRAME = count_tokens(_block([["-"], ["-"], ["-"]], markdown=True))


def _present(
    ask: ContextAsk,
    found: RecallRead,
    turns: list[NoteRead],
    profile: list[FactRead],
    results: list[RecalledFact | RecalledNote],
    lines: list[str],
) -> ContextRead:
    known = [[profile_line(fact) for fact in profile], lines]
    facts = [result.id for result in results if isinstance(result, RecalledFact)]
    used = ContextUsed(
        turns=[turn.note_id for turn in turns],
        profile=[fact.fact_id for fact in profile],
        facts=facts,
        notes=[result.id for result in results if isinstance(result, RecalledNote)],
    )
    if ask.format == "messages":
        remembered = _block(known, markdown=False)
        messages = [Message(role="system", content=remembered)] if remembered else []
        messages += [Message(role=_role(turn), content=turn.content) for turn in turns]
        tokens = sum(count_tokens(message.content) for message in messages)
        return ContextRead(messages=messages, tokens_used=tokens, used=used, trace_id=found.trace_id)
    text = _block([*known, [_turn_line(turn) for turn in turns]], markdown=ask.format == "markdown")
    return ContextRead(context=text, tokens_used=count_tokens(text), used=used, trace_id=found.trace_id)


def _role(turn: NoteRead) -> Literal["user", "assistant"]:
    """Return the role of a turn; whatever authors are called, nobody is the system."""
    return "assistant" if (turn.author or "").casefold() == "assistant" else "user"
