"""Dependencies of the handlers of cards."""

from app.web.dependencies import Provided, ServiceContext


def provide(context: ServiceContext) -> Provided:
    """Provide the age in seconds at which a card is stale."""
    return Provided(values={"card_max_age": context.settings.card_max_age_seconds})
