"""What has to hold of embedding models before the service starts."""

from app.embeddings.models import check_models
from app.web.dependencies import Provided, ServiceContext


def provide(context: ServiceContext) -> Provided:
    """Check at the start that the configured model fits what is stored."""

    async def check() -> None:
        await check_models(context.db, context.settings)

    return Provided(check=check)
