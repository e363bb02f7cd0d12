"""Pipeline settings of a project: modes, limits and models, read again by every job."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from app.access import Principal, acting_scope
from app.audit import events as audit
from app.db.database import Database, Row, Session
from app.db.scope import Scope
from app.errors import BadRequest, Forbidden, NotFound
from app.inputs import invalid_body
from app.providers.build import parse_model
from app.tenancy import queries

Fraction = Annotated[float, Meta(ge=0.0, le=1.0)]
Provider = Literal["ollama", "openai"]
ModelName = Annotated[str, Meta(min_length=1, max_length=200)]
Tokens = Annotated[int, Meta(ge=0, le=10**12)]
Period = Literal["day", "month", "total"]
MaintenanceMode = Literal["observe", "execute"]
ExtractionTimeout = Annotated[int, Meta(ge=5_000, le=300_000)]
Poll = Annotated[int, Meta(ge=100, le=60_000)]
Retries = Annotated[int, Meta(ge=1, le=10)]
LeaseTimeout = Annotated[int, Meta(ge=10_000, le=600_000)]
BoostTimeout = Annotated[int, Meta(ge=50, le=5_000)]
RerankerModel = Annotated[str, Meta(max_length=200)]
TopN = Annotated[int, Meta(ge=1, le=100)]
RerankerTimeout = Annotated[int, Meta(ge=100, le=30_000)]
MaintenanceInterval = Annotated[int, Meta(ge=60_000, le=86_400_000)]
ReembedCooldown = Annotated[int, Meta(ge=10_000, le=3_600_000)]
RequeueCooldown = Annotated[int, Meta(ge=5_000, le=3_600_000)]
HourlyBudget = Annotated[int, Meta(ge=1, le=1_000)]
DocumentInterval = Annotated[int, Meta(ge=1_000, le=300_000)]
ChunkSize = Annotated[int, Meta(ge=200, le=50_000)]
ChunkOverlap = Annotated[int, Meta(ge=0, le=10_000)]
DocumentBytes = Annotated[int, Meta(ge=1_024, le=104_857_600)]
ExtractedChunks = Annotated[int, Meta(ge=0, le=100_000)]


class PipelineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How notes of a project are extracted, reranked and maintained."""

    enabled: bool = False
    """Whether notes are extracted."""
    shadow_mode: bool = False
    """Record proposals without writing them."""
    allow_update_delete: bool = False
    """Full mode: proposals may change and delete existing notes."""
    graph_enabled: bool = False
    """Write facts from extracted relations, and let recall use them as a boost."""
    autonomous_enabled: bool = False
    """Run maintenance every maintenance_interval_ms."""
    mutations_frozen: bool = False
    """Stop all writes of the pipeline, as in shadow mode."""
    autonomous_frozen: bool = False
    """Stop scheduled maintenance."""
    extraction_provider: Provider = "ollama"
    """Which kind of server runs the model; its address is a setting of the installation."""
    extraction_model: ModelName = "qwen3:4b"
    extraction_timeout: ExtractionTimeout = 45_000
    """Milliseconds a model may take for one completion."""
    extraction_token_budget: Tokens | None = None
    """Tokens that may be used in a period; then extraction stops while notes are still accepted. null: no limit."""
    extraction_budget_period: Period = "month"
    worker_poll_ms: Poll = 2_000
    """Accepted and stored without effect: workers are notified of new work."""
    worker_max_retries: Retries = 3
    """Attempts at one extraction or document."""
    lease_timeout_ms: LeaseTimeout = 300_000
    """Milliseconds one attempt may take in total."""
    min_fact_confidence_for_write: Fraction = 0.7
    """Facts below this confidence are not written."""
    min_confidence_for_update_delete: Fraction = 0.8
    """Proposals to change or delete below this confidence are not applied."""
    graph_boost_weight: Fraction = 0.15
    """How much notes about the entities of a query are boosted: s = (1 - w) * s + w."""
    graph_boost_timeout_ms: BoostTimeout = 500
    reranker_enabled: bool = False
    reranker_model: RerankerModel = ""
    reranker_top_n: TopN = 20
    reranker_timeout_ms: RerankerTimeout = 2_000
    maintenance_interval_ms: MaintenanceInterval = 1_800_000
    maintenance_mode: MaintenanceMode = "observe"
    """observe: only recommend repairs; execute: run them."""
    repair_reembed_cooldown_ms: ReembedCooldown = 300_000
    repair_reembed_hourly_budget: HourlyBudget = 10
    repair_requeue_cooldown_ms: RequeueCooldown = 60_000
    repair_requeue_hourly_budget: HourlyBudget = 50
    document_worker_interval_ms: DocumentInterval = 10_000
    """Accepted and stored without effect: workers are notified of new work."""
    document_chunk_size: ChunkSize = 2_000
    """Characters of a chunk."""
    document_chunk_overlap: ChunkOverlap = 200
    """Characters a chunk shares with the previous one; less than document_chunk_size."""
    document_max_content_bytes: DocumentBytes = 10_485_760
    document_extract_chunks: ExtractedChunks = 100
    """How many chunks of a document are extracted where notes are, the first ones; 0 extracts none."""

    @property
    def writes(self) -> bool:
        """Whether proposals may be written."""
        return self.enabled and not self.shadow_mode and not self.mutations_frozen

    @property
    def mode(self) -> Literal["off", "shadow", "controlled_write", "full"]:
        """The mode that the flags result in."""
        if not self.enabled:
            return "off"
        if not self.writes:
            return "shadow"
        return "full" if self.allow_update_delete else "controlled_write"


FIELDS = frozenset(PipelineSettings.__struct_fields__)


def read_settings(settings: dict[str, Any]) -> PipelineSettings:
    """Return the pipeline settings among the stored settings of a project."""
    return msgspec.convert(settings.get("pipeline", {}), PipelineSettings)


async def find_settings(db: Database, who: Scope) -> PipelineSettings:
    """Return the pipeline settings of the scope's project, or the defaults."""
    statement = queries.select_project(tenant_id=who.tenant_id, project_id=who.project_id or "")
    rows = await db.fetch(who, statement)
    return read_settings(rows[0]["settings"]) if rows else PipelineSettings()


async def load_settings(session: Session, who: Scope) -> PipelineSettings:
    """Return the settings of the caller's project within an open transaction."""
    row = await session.row(queries.select_project(tenant_id=who.tenant_id, project_id=who.project_id or ""))
    return PipelineSettings() if row is None else read_settings(row["settings"])


async def lock_settings(session: Session, who: Scope) -> PipelineSettings:
    """Lock the caller's project until the transaction ends and return its settings, or raise NotFound."""
    statement = queries.select_project(tenant_id=who.tenant_id, project_id=who.project_id or "")
    row = await session.row(statement.with_for_update(key_share=True))
    if row is None:
        raise _project_not_found()
    return read_settings(row["settings"])


async def get_settings(db: Database, who: Principal, *, project_id: str) -> PipelineSettings:
    """Return the pipeline settings of a project, defaults included, or raise NotFound."""
    _check_project(who, project_id)
    statement = queries.select_project(tenant_id=who.tenant_id, project_id=project_id)
    rows = await db.fetch(who.across_projects(), statement)
    if not rows:
        raise _project_not_found()
    return read_settings(rows[0]["settings"])


async def put_settings(db: Database, who: Principal, *, project_id: str, changes: dict[str, Any]) -> PipelineSettings:
    """Change the given settings and return all of them; null restores a default."""
    if unknown := sorted(changes.keys() - FIELDS):
        allowed = sorted(FIELDS)
        raise BadRequest(
            f"{unknown[0][:200]}: unknown setting; allowed here: {', '.join(allowed)}",
            code="invalid_setting",
            details={"allowed": allowed},
        )
    scope = acting_scope(who, None)
    _check_project(who, project_id)
    address = {"tenant_id": scope.tenant_id, "project_id": project_id}
    async with db.tenant(scope) as session:
        found = await queries.lock_project(session, **address)
        if found is None:
            raise _project_not_found()
        pipeline: Row = {**found["settings"].get("pipeline", {}), **changes}
        pipeline = {name: value for name, value in pipeline.items() if value is not None}
        settings = _checked(pipeline)
        if changes:
            stored = {**found["settings"], "pipeline": pipeline}
            await queries.update_project(session, **address, settings=stored, name=found["name"])
            details = {"action": "pipeline_settings", "project_id": project_id, "changed": sorted(changes)}
            await audit.record(session, "admin_action", key_id=who.key_id, **details)
    return settings


def _checked(pipeline: Row) -> PipelineSettings:
    """Return the settings, or raise BadRequest for values that are invalid alone or together."""
    try:
        settings = msgspec.convert(pipeline, PipelineSettings)
    except msgspec.ValidationError as problem:
        raise invalid_body(problem, PipelineSettings) from problem
    if settings.document_chunk_overlap >= settings.document_chunk_size:
        raise BadRequest("document_chunk_overlap: must be less than document_chunk_size.")
    if settings.reranker_model:
        try:
            spec = parse_model(settings.reranker_model)
        except ValueError as problem:
            raise BadRequest(f"reranker_model: {problem}") from problem
        if spec.provider not in ("openai", "voyage") or not spec.model:
            raise BadRequest("reranker_model: give a provider and its model, such as voyage/rerank-2-lite.")
    return settings


def _check_project(who: Principal, project_id: str) -> None:
    if who.key_project not in (None, project_id):
        raise Forbidden(f"This key is bound to project {who.key_project}.", code="project_forbidden")


def _project_not_found() -> NotFound:
    return NotFound("There is no such project.", code="project_not_found")
