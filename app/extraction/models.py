"""The models a project has its notes read by: built when first asked, each behind a breaker, every call on record."""

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec
import structlog

from app.access import new_id
from app.config import Settings
from app.db.database import Database
from app.db.scope import Scope
from app.extraction import queries
from app.extraction.answers import read_object
from app.jobs.registry import PermanentFailure, Postponed
from app.providers.base import (
    Completer,
    Completion,
    InputRefused,
    Message,
    ProviderError,
    ProviderMisconfigured,
    UnusableResponse,
    Usage,
)
from app.providers.breaker import Breaker, BreakerPolicy
from app.providers.build import ModelSpec, Provider, ProviderSettings, build_completer
from app.telemetry.metrics import LLM_CALLS, LLM_SECONDS, LLM_TOKENS
from app.tenancy.settings import PipelineSettings

log: structlog.stdlib.BoundLogger = structlog.get_logger()

KEPT = 256
AT_ONCE_SECONDS = 0.5
CHARACTERS_PER_TOKEN = 4
MOST_TOKENS = 10_000_000
# A job loses an attempt by a failure; when nobody answers any job, the rest of them wait with theirs unspent.
POLICY = BreakerPolicy(probe_seconds=30.0, consecutive_downs=20, min_attempts=60)
BUDGET_SPENT = "token_budget_spent"

Build = Callable[[ModelSpec], Completer]


class ModelFailed(ProviderError):
    """A model's server failed; with what it said, for the maker of the job and administrators."""

    retry_after: float | None = None


class Guarded:
    """One model and how its last calls ended."""

    def __init__(self, spec: ModelSpec, build: Build) -> None:
        self.spec = spec
        self.breaker = Breaker(POLICY)
        self._build = build
        self._completer: Completer | None = None

    def completer(self) -> Completer:
        """Built when it is first asked: one without its key must not keep the others from working."""
        if self._completer is None:
            self._completer = self._build(self.spec)
        return self._completer

    async def aclose(self) -> None:
        if self._completer is not None:
            await self._completer.aclose()


class Models:
    """The models of this process."""

    def __init__(self, settings: Settings, *, build: Build | None = None) -> None:
        self._providers = ProviderSettings(
            ollama_url=settings.ollama_url,
            openai_base_url=settings.openai_base_url,
            openai_api_key=settings.openai_api_key,
        )
        self._build = build or self._from_settings
        self._kept: OrderedDict[tuple[str, ModelSpec], Guarded] = OrderedDict()

    def of(self, tenant_id: str, settings: PipelineSettings) -> Guarded:
        """The model a project names; by tenant, so that nobody's time-outs count against the others."""
        spec = ModelSpec(provider=cast("Provider", settings.extraction_provider), model=settings.extraction_model)
        key = (tenant_id, spec)
        if key not in self._kept:
            self._kept[key] = Guarded(spec, self._build)
        self._kept.move_to_end(key)
        if len(self._kept) > KEPT:
            # Forgotten, not closed: a call may be under way. Its connections go with it.
            self._kept.popitem(last=False)
        return self._kept[key]

    async def aclose(self) -> None:
        """Lets go of connections."""
        for guarded in self._kept.values():
            await guarded.aclose()

    def _from_settings(self, spec: ModelSpec) -> Completer:
        completer = build_completer(spec, self._providers)
        if completer is None:
            raise ProviderMisconfigured(f"{spec} writes nothing.")
        return completer


class Calls:
    """The calls that one job makes, within its project's budget."""

    def __init__(
        self, db: Database, scope: Scope, *, job_id: str, model: Guarded, settings: PipelineSettings, spent: int
    ) -> None:
        self._db = db
        self._scope = scope
        self._job_id = job_id
        self._model = model
        self._settings = settings
        self._spent = spent
        self.count = 0
        self.input_tokens = 0
        self.output_tokens = 0
        self._unrecorded: list[dict[str, Any]] = []

    @property
    def name(self) -> str:
        """The model, as it is put on record."""
        return str(self._model.spec)

    def as_dict(self) -> dict[str, int]:
        """What they have cost, for the job's result."""
        return {"calls": self.count, "input_tokens": self.input_tokens, "output_tokens": self.output_tokens}

    async def ask(
        self, purpose: str, messages: Sequence[Message], *, max_tokens: int, json_schema: Mapping[str, Any]
    ) -> str:
        """What the model answers; on record and paid for, however it ends."""
        self._check_budget()
        breaker = self._model.breaker
        if not breaker.permit(1):
            raise Postponed(datetime.now(UTC) + timedelta(seconds=max(1.0, breaker.seconds_until_probe)))
        started = time.perf_counter()
        try:
            answer = await self._model.completer().complete(
                messages,
                max_tokens=max_tokens,
                json_schema=json_schema,
                timeout_seconds=self._settings.extraction_timeout / 1000,
            )
            if (answer.truncated and read_object(answer.text)[0] is None) or not answer.text.strip():
                raise UnusableResponse(f"{self.name} had no room left for an answer, or gave none.")
        except ProviderError as problem:
            breaker.failed(problem)
            # One that answered uselessly wants to be paid; one that was not there does not.
            read = _estimate(messages) if isinstance(problem, UnusableResponse) else 0
            await self._record(purpose, Usage(input_tokens=read), started, outcome="failed")
            raise _told(problem) from problem
        except BaseException:
            # Cancelled: what it has cost is told with the next record.
            self._keep(purpose, Usage(input_tokens=_estimate(messages)), started, outcome="failed")
            raise
        breaker.succeeded()
        await self._record(purpose, _paid(answer, messages), started, outcome="answered")
        return answer.text

    def _check_budget(self) -> None:
        budget = self._settings.extraction_token_budget
        if budget is not None and self._spent + self.input_tokens + self.output_tokens >= budget:
            raise PermanentFailure(
                f"{BUDGET_SPENT}: the project's {budget} tokens of this {self._settings.extraction_budget_period} are "
                "spent; raise extraction_token_budget, and retry the job."
            )

    async def _record(self, purpose: str, usage: Usage, started: float, *, outcome: str) -> None:
        if self._keep(purpose, usage, started, outcome=outcome) > AT_ONCE_SECONDS:
            await self.flush()

    def _keep(self, purpose: str, usage: Usage, started: float, *, outcome: str) -> float:
        seconds = time.perf_counter() - started
        self.count += 1
        self.input_tokens += usage.input_tokens
        self.output_tokens += usage.output_tokens
        LLM_CALLS.labels(purpose, outcome).inc()
        LLM_SECONDS.labels(purpose).observe(seconds)
        LLM_TOKENS.labels("input").inc(usage.input_tokens)
        LLM_TOKENS.labels("output").inc(usage.output_tokens)
        self._unrecorded.append(
            {
                "call": new_id(),
                "purpose": purpose,
                "input": usage.input_tokens,
                "output": usage.output_tokens,
                "succeeded": outcome == "answered",
                "duration": round(seconds * 1000),
            }
        )
        return seconds

    async def flush(self) -> None:
        """Puts the calls on record that are not yet; those that took long are at once, whatever becomes of the job."""
        if not self._unrecorded:
            return
        calls, self._unrecorded = self._unrecorded, []
        params = {
            "tenant": self._scope.tenant_id,
            "project": self._scope.project_id,
            "job": self._job_id,
            "model": self.name,
            "calls": msgspec.json.encode(calls).decode(),
        }
        await self._db.query(self._scope, queries.RECORD_CALLS, params)


def _estimate(messages: Sequence[Message]) -> int:
    """About how many tokens a model reads, where nobody counts them."""
    return sum(len(message.content) for message in messages) // CHARACTERS_PER_TOKEN


def _paid(answer: Completion, messages: Sequence[Message]) -> Usage:
    """What an answer has cost: as its server says, or about so much where it does not, or says nonsense."""
    read, written = answer.usage.input_tokens, answer.usage.output_tokens
    return Usage(
        input_tokens=read if 0 < read < MOST_TOKENS else _estimate(messages),
        output_tokens=written if 0 < written < MOST_TOKENS else len(answer.text) // CHARACTERS_PER_TOKEN,
    )


def _told(problem: ProviderError) -> Exception:
    """The same problem with what the server said of it; one that trying again cannot help ends the job."""
    said = problem.details.get("answer") if problem.details else None
    message = f"{problem.message} It said: {said}" if said else problem.message
    if isinstance(problem, InputRefused):
        return PermanentFailure(f"{problem.code}: {message}")
    failed = ModelFailed(message, code=problem.code)
    failed.retry_after = getattr(problem, "retry_after", None)
    return failed
