"""Dependencies of the handlers of traversal."""

from app.web.dependencies import Provided, ServiceContext


def provide(context: ServiceContext) -> Provided:
    """Provide the upper bound of limit_nodes times depth of an expansion."""
    return Provided(values={"expand_cap": context.settings.expand_cap})
