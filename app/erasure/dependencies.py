"""Dependencies of every handler that reads rows under legal hold."""

from app.config import Settings
from app.facts.as_of import check_held_notes
from app.facts.names import normalize_entity_name
from app.web.dependencies import Provided, ServiceContext


def hold_denied(settings: Settings) -> frozenset[str]:
    """Return the names of entities under legal hold whose past not even administrators read."""
    return frozenset(normalize_entity_name(name) for name in settings.legal_hold_denied)


def provide(context: ServiceContext) -> Provided:
    """Provide the names of `hold_denied`, and the check of notes for the domain below."""
    return Provided(values={"hold_denied": hold_denied(context.settings), "check_held_notes": check_held_notes})
