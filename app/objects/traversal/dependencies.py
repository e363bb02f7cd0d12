"""What the handlers of traversal are given."""

from app.web.dependencies import Provided, ServiceContext


def provide(context: ServiceContext) -> Provided:
    """Provide the product of limits that an expansion may not exceed."""
    return Provided(values={"expand_cap": context.settings.expand_cap})
