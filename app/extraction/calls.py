"""Calls of a model by one job: checked against the token budget, recorded and counted."""

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from app.access import new_id
from app.db.database import Database
from app.db.scope import Scope
from app.extraction import queries
from app.extraction.completions import parse_json
from app.extraction.models import GuardedModel
from app.jobs.registry import PermanentFailure, Postponed, error_text
from app.providers.base import (
    Completion,
    InputRefused,
    Message,
    ProviderDown,
    ProviderError,
    UnusableResponse,
    Usage,
)
from app.telemetry.metrics import LLM_CALLS, LLM_SECONDS, LLM_TOKENS
from app.tenancy.settings import PipelineSettings

# Calls that took longer are recorded at once, so that they are not lost with the job.
FLUSH_SECONDS = 0.5
# Between two tries to reach a server; when it stays away, the circuit breaker makes the pauses longer.
UNREACHABLE_SECONDS = 5.0
CHARACTERS_PER_TOKEN = 4
MAX_REPORTED_TOKENS = 10_000_000
BUDGET_SPENT = "token_budget_spent"


class ModelFailed(ProviderError):
    """The model's server failed; the message includes its response, for administrators and the job's creator."""

    retry_after: float | None = None


class ModelCalls:
    """The calls that one job makes within its project's token budget."""

    def __init__(
        self, db: Database, scope: Scope, *, job_id: str, model: GuardedModel, settings: PipelineSettings, spent: int
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
    def model_name(self) -> str:
        """The model as it is recorded."""
        return str(self._model.spec)

    def as_dict(self) -> dict[str, int]:
        """Return the usage for the job's result."""
        return {"calls": self.count, "input_tokens": self.input_tokens, "output_tokens": self.output_tokens}

    async def complete(
        self, purpose: str, messages: Sequence[Message], *, max_tokens: int, json_schema: Mapping[str, Any]
    ) -> str:
        """Return the completion of the model; the call is recorded however it ends."""
        self._check_budget()
        breaker = self._model.breaker
        if not breaker.permit(1):
            raise Postponed(datetime.now(UTC) + timedelta(seconds=max(1.0, breaker.seconds_until_probe)))
        started = time.perf_counter()
        try:
            completion = await self._model.completer().complete(
                messages,
                max_tokens=max_tokens,
                json_schema=json_schema,
                timeout_seconds=self._settings.extraction_timeout / 1000,
            )
            self._check_usable(completion)
        except ProviderError as problem:
            breaker.failed(problem)
            # An unusable completion costs tokens; an unreachable server does not.
            tokens = _estimate_tokens(messages) if isinstance(problem, UnusableResponse) else 0
            await self._record(purpose, Usage(input_tokens=tokens), started, outcome="failed")
            if isinstance(problem, ProviderDown) and problem.unreachable:
                # The server has seen nothing: the job waits for it and keeps its attempts.
                wait = max(UNREACHABLE_SECONDS, breaker.seconds_until_probe)
                raise Postponed(datetime.now(UTC) + timedelta(seconds=wait), reason=error_text(problem)) from problem
            raise _with_response(problem) from problem
        except BaseException:
            # Cancelled, so nothing can be awaited: recorded with the next flush.
            self._count(purpose, Usage(input_tokens=_estimate_tokens(messages)), started, outcome="failed")
            raise
        breaker.succeeded()
        await self._record(purpose, _usage_of(completion, messages), started, outcome="answered")
        return completion.text

    def _check_usable(self, completion: Completion) -> None:
        cut_off = completion.truncated and parse_json(completion.text)[0] is None
        if cut_off or not completion.text.strip():
            raise UnusableResponse(f"{self.model_name} returned an empty completion, or one cut off before any answer.")

    def _check_budget(self) -> None:
        budget = self._settings.extraction_token_budget
        if budget is not None and self._spent + self.input_tokens + self.output_tokens >= budget:
            raise PermanentFailure(
                f"{BUDGET_SPENT}: the project has spent its {budget} tokens of this "
                f"{self._settings.extraction_budget_period}; raise extraction_token_budget and retry the job."
            )

    async def _record(self, purpose: str, usage: Usage, started: float, *, outcome: str) -> None:
        if self._count(purpose, usage, started, outcome=outcome) > FLUSH_SECONDS:
            await self.flush()

    def _count(self, purpose: str, usage: Usage, started: float, *, outcome: str) -> float:
        """Count a call, keep it for the next flush and return how many seconds it took."""
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
        """Record the calls that are not recorded yet, in a transaction of their own."""
        if not self._unrecorded:
            return
        calls, self._unrecorded = self._unrecorded, []
        params = {
            "tenant": self._scope.tenant_id,
            "project": self._scope.project_id,
            "job": self._job_id,
            "model": self.model_name,
            "calls": msgspec.json.encode(calls).decode(),
        }
        await self._db.query(self._scope, queries.RECORD_CALLS, params)


def _estimate_tokens(messages: Sequence[Message]) -> int:
    """Return about how many tokens the messages have, for servers that report none."""
    return sum(len(message.content) for message in messages) // CHARACTERS_PER_TOKEN


def _usage_of(completion: Completion, messages: Sequence[Message]) -> Usage:
    """Return the usage that the server reports, or an estimate where it reports none or an implausible one."""
    read, written = completion.usage.input_tokens, completion.usage.output_tokens
    return Usage(
        input_tokens=read if 0 < read < MAX_REPORTED_TOKENS else _estimate_tokens(messages),
        output_tokens=written if 0 < written < MAX_REPORTED_TOKENS else len(completion.text) // CHARACTERS_PER_TOKEN,
    )


def _with_response(problem: ProviderError) -> Exception:
    """Return the problem with the server's response in its message; PermanentFailure when a retry cannot help."""
    response = problem.details.get("answer") if problem.details else None
    message = f"{problem.message} It said: {response}" if response else problem.message
    if isinstance(problem, InputRefused):
        return PermanentFailure(f"{problem.code}: {message}")
    failed = ModelFailed(message, code=problem.code)
    failed.retry_after = getattr(problem, "retry_after", None)
    return failed
