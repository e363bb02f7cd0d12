"""Start-up checks of embedding models."""

from app.embeddings.models import check_models
from app.web.dependencies import Provided, ServiceContext


def provide(context: ServiceContext) -> Provided:
    """Provide the check that the configured model matches the stored vectors."""

    async def check() -> None:
        await check_models(context.db, context.settings)

    return Provided(check=check)
