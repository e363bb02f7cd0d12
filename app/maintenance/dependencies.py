"""Dependencies of the handlers of maintenance."""

from app.maintenance.options import MaintenanceOptions
from app.web.dependencies import Provided, ServiceContext


def provide(context: ServiceContext) -> Provided:
    """Provide the settings that diagnostics and repairs read."""
    return Provided(values={"maintenance_options": MaintenanceOptions.of(context.settings)})
