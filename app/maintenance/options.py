"""What maintenance needs of the settings of a deployment."""

from typing import Self

import msgspec

from app.cards.service import MAX_AGE_SECONDS
from app.config import Settings
from app.embeddings.tasks import LEAST_CONFIDENCE
from app.maintenance.retention import Retention


class MaintenanceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a deployment that diagnostics and repairs read."""

    retention: Retention = Retention()
    least_confidence: float = LEAST_CONFIDENCE
    """Facts of no more confidence have no vector."""
    card_max_age: float = MAX_AGE_SECONDS
    """After how many seconds a card is stale."""

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return the options of a deployment."""
        return cls(
            retention=Retention.of(settings),
            least_confidence=settings.embed_min_confidence,
            card_max_age=settings.card_max_age_seconds,
        )


DEFAULTS = MaintenanceOptions()
