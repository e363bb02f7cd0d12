"""The job that destroys everything of a user."""

from typing import Any

import msgspec

from app import __version__
from app.db.scope import Scope
from app.erasure.tasks import OUTSIDE
from app.jobs.registry import Handler, Job, JobContext, PermanentFailure, Registry
from app.signing import ALGORITHM, Signer, encode_base64
from app.users import queries


def eraser(signer: Signer) -> Handler:
    """Return the handler that destroys everything of a user and stores a signed receipt, in one transaction."""

    async def erase(job: Job) -> None:
        public_key = await signer.public_key()
        place = msgspec.structs.replace(job.scope, project_id=job.payload.get("project_id"))
        erasure = job.payload.get("erasure_id")
        async with job.finishing() as session:
            await session.enter(place)
            await session.execute(queries.NO_TIMEOUT)
            arguments = {"erasure": erasure, "user": job.payload.get("user_id"), "job": job.job_id}
            row = await session.row(queries.ERASE_USER, arguments)
            assert row is not None
            if row["refused"] == "already_erased":
                return
            if row["refused"] is not None:
                raise PermanentFailure(f"{row['refused']}: nothing was erased; ask again once that has changed.")
            receipt = _receipt(place, str(erasure), row["report"], public_key)
            signed = msgspec.json.encode(receipt, order="sorted").decode()
            await session.execute(
                queries.STORE_RECEIPT,
                {
                    "erasure": erasure,
                    "signed": signed,
                    "signature": await signer.sign_receipt(session, signed),
                    "public_key": public_key,
                },
            )

    return erase


def _receipt(place: Scope, erasure_id: str, report: dict[str, Any], public_key: bytes) -> dict[str, Any]:
    return {
        "erasure_id": erasure_id,
        "tenant_id": place.tenant_id,
        "project_id": place.project_id,
        "user_hash": report["user_hash"],
        "requested_at": report["requested_at"],
        "completed_at": report["completed_at"],
        "destroyed": report["counts"],
        "columns_checked": report["columns_checked"],
        "outside": OUTSIDE,
        "algorithm": ALGORITHM,
        "public_key": encode_base64(public_key),
        "software": f"palimpsest {__version__}",
    }


def register_jobs(registry: Registry, context: JobContext) -> None:
    """Register the erasure of users."""
    registry.register("erase_user", eraser(Signer(context.db, context.settings.signing_key)))
