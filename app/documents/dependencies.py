"""What the handlers of documents are given."""

from app.config import Settings
from app.documents.fetching import FetchRules
from app.web.dependencies import Provided, ServiceContext


def fetch_rules(settings: Settings) -> FetchRules:
    """Return which addresses may be fetched from the web."""
    return FetchRules.of(enabled=settings.document_fetch, networks=settings.document_fetch_networks)


def provide(context: ServiceContext) -> Provided:
    """Provide the rules of fetching."""
    return Provided(values={"fetch_rules": fetch_rules(context.settings)})
