"""The job that destroys what a tombstone hides."""

from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from app import __version__
from app.access import new_id
from app.db.scope import Scope
from app.erasure import queries
from app.jobs.registry import Handler, Job, JobContext, PermanentFailure, Postponed, Registry
from app.signing import ALGORITHM, Signer, encode_base64

OUTSIDE = (
    "Backups, replicas that lag behind and the write-ahead log of PostgreSQL are outside the reach of this erasure; "
    "their own retention applies to them."
)


def eraser(signer: Signer) -> Handler:
    """Return the handler that destroys what a tombstone hides and stores a signed receipt, in one transaction."""

    async def erase(job: Job) -> None:
        tombstone_id: str | None = job.payload.get("tombstone_id")
        public_key = await signer.public_key()
        # The job belongs to the tenant, so that agents cannot see it; its work is in one project.
        place = replace(job.scope, project_id=job.payload.get("project_id"))
        async with job.finishing() as session:
            await session.enter(place)
            await session.execute(queries.NO_TIMEOUT)
            row = await session.row(queries.ERASE_ENTITY, {"tombstone": tombstone_id, "job": job.job_id})
            assert row is not None
            if row["refused"] in ("tombstone_already_revoked", "already_erased"):
                return
            if row["refused"] == "not_yet":
                raise Postponed(datetime.fromisoformat(row["report"]["erase_at"]))
            if row["refused"] == "legal_hold":
                raise PermanentFailure("legal_hold: an active legal hold blocks it; revoking the hold resumes this.")
            if row["refused"] is not None:
                raise PermanentFailure(f"{row['refused']}: nothing to erase.")
            receipt = _receipt(place, str(tombstone_id), row["report"], public_key)
            signed = msgspec.json.encode(receipt, order="sorted").decode()
            await session.execute(
                queries.STORE_RECEIPT,
                {
                    "receipt": receipt["receipt_id"],
                    "tombstone": tombstone_id,
                    "signed": signed,
                    "signature": await signer.sign_receipt(session, signed),
                    "public_key": public_key,
                    "now": row["report"]["completed_at"],
                },
            )

    return erase


def _receipt(place: Scope, tombstone_id: str, report: dict[str, Any], public_key: bytes) -> dict[str, Any]:
    found: list[dict[str, Any]] = report["found"]
    checked = next(entry["rows"] for entry in found if entry["kind"] == "looked")
    return {
        "receipt_id": new_id(),
        "tenant_id": place.tenant_id,
        "project_id": place.project_id,
        "tombstone_id": tombstone_id,
        "entity_id": report["entity_id"],
        "scope": report["scope"] or "*",
        "requested_at": report["requested_at"],
        "completed_at": report["completed_at"],
        "destroyed": report["counts"],
        "columns_checked": checked,
        "searched_for": {"names": bool(report["names"]), "values": report["values"]},
        # Where names and values still occur: in other entities' names, in labels, or in what others wrote.
        "names_left": _remaining(found, "name"),
        # What was not destroyed, but has the words of a name in another order or with an initial.
        "possibly_about": _remaining(found, "possible"),
        "values_left": _remaining(found, "value"),
        "outside": OUTSIDE,
        "algorithm": ALGORITHM,
        "public_key": encode_base64(public_key),
        "software": f"palimpsest {__version__}",
    }


def _remaining(found: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [
        {"table": entry["table"], "column": entry["column"], "rows": entry["rows"], "ids": entry["ids"] or []}
        for entry in found
        if entry["kind"] == kind
    ]


def register_jobs(registry: Registry, context: JobContext) -> None:
    """Register erasure."""
    registry.register("erase", eraser(Signer(context.db, context.settings.signing_key)))
