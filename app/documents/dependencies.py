"""Dependencies of the handlers of documents."""

from app.documents.fetcher import FetchRules
from app.web.dependencies import Provided, ServiceContext


def provide(context: ServiceContext) -> Provided:
    """Provide the rules of which addresses may be fetched."""
    return Provided(values={"fetch_rules": FetchRules.from_settings(context.settings)})
