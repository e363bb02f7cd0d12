"""Trust: how reliable a source is, from 0 to 1, by its identity, history and authority."""

from datetime import timedelta
from typing import Literal

import msgspec

Identity = Literal["signed_manifest", "manifest", "capability_token", "local_key", "syntactic", "none"]
Authority = Literal["write_token", "admin", "same_authority", "federated", "other"]
TrustMode = Literal["enforce", "warn", "off"]

IDENTITY: dict[Identity, float] = {
    "signed_manifest": 1.0,
    "manifest": 0.7,
    "capability_token": 0.5,
    "local_key": 0.4,
    "syntactic": 0.1,
    "none": 0.0,
}
AUTHORITY: dict[Authority, float] = {
    "write_token": 1.0,
    "admin": 0.9,
    "same_authority": 0.7,
    "federated": 0.5,
    "other": 0.2,
}
MODE: dict[TrustMode, float] = {"enforce": 1.0, "warn": 0.6, "off": 0.2}
# The trust in a fact without a source.
UNKNOWN_TRUST = 0.5
# Below this, confidence times trust counts as low.
LOW_TRUST = 0.2
# Where trust is off it hides nothing but blocklisted sources, whose trust is 0: everything else is above this.
NO_TRUST = 1e-300
PROVEN_FACTS = 100
PROVEN_TIME = timedelta(days=30)
KNOWN_FACTS = 10
FAILING_SHARE = 0.05


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a source."""

    identity: Identity = "syntactic"
    authority: Authority = "other"
    blocklisted: bool = False
    facts: int = 0
    failures: int = 0
    known_for: timedelta = timedelta(0)


def judge_history(record: Record) -> float:
    """Return the score of a source's facts so far."""
    if record.blocklisted:
        return 0.0
    if record.failures and record.failures >= FAILING_SHARE * record.facts:
        return 0.3
    if record.facts >= PROVEN_FACTS and not record.failures and record.known_for >= PROVEN_TIME:
        return 1.0
    return 0.7 if record.facts >= KNOWN_FACTS else 0.5


def judge_source(record: Record, mode: TrustMode) -> float:
    """Return the trust in a source: the weighted sum of its signals; 0 when it is blocklisted."""
    if record.blocklisted:
        return 0.0
    total = (
        0.35 * IDENTITY[record.identity]
        + 0.30 * judge_history(record)
        + 0.25 * AUTHORITY[record.authority]
        + 0.10 * MODE[mode]
    )
    return min(1.0, max(0.0, round(total, 6)))
