"""Names of entities and predicates: how they are written, and by what they are the same."""

import re
import unicodedata
from uuid import UUID

import msgspec

from app.errors import BadRequest

MAX_NAME = 512
MAX_PREDICATE = 200
URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?=\S)")
SCHEME_ALONE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\s*$")
ID = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")
# Shown as nothing: controls, formats, surrogates, unassigned, and the separators.
INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Cn", "Zs", "Zl", "Zp"})


class Name(msgspec.Struct, frozen=True):
    """A name as it is shown, and as it is compared."""

    shown: str
    norm: str


def normalize_entity_name(text: str) -> str:
    """Trimmed, white space collapsed, lower case; in a URI white space becomes a hyphen."""
    collapsed = _lower(" ".join(text.split()))
    return collapsed.replace(" ", "-") if URI.match(collapsed) else collapsed


def entity_name(text: str, field: str) -> Name:
    """The name of an entity; a URI is shown as it is compared."""
    _require_text(text, field, limit=MAX_NAME, code="invalid_entity")
    if SCHEME_ALONE.match(text.strip()):
        raise BadRequest(f"{field}: a URI needs something after its scheme.", code="invalid_entity")
    norm = normalize_entity_name(text)
    return Name(norm if URI.match(norm) else " ".join(unicodedata.normalize("NFC", text).split()), norm)


def predicate_name(text: str, field: str) -> Name:
    """The name of a predicate."""
    _require_text(text, field, limit=MAX_PREDICATE, code="invalid_predicate")
    shown = " ".join(unicodedata.normalize("NFC", text).split())
    return Name(shown, _lower(shown))


def _lower(text: str) -> str:
    # Lower case first: it can leave letters apart that then belong together.
    return unicodedata.normalize("NFC", text.lower())


def as_id(text: str) -> str | None:
    """The id a text is, if it is one: names and ids are taken in the same place."""
    return str(UUID(text.strip())) if ID.fullmatch(text.strip()) else None


def plain_text(text: str | None, field: str) -> str | None:
    """A label without white space around it; one of nothing else is refused."""
    if text is None:
        return None
    if not text.strip():
        raise BadRequest(f"{field}: empty once white space is trimmed; leave it out, or say something.")
    return text.strip()


def _require_text(text: str, field: str, *, limit: int, code: str) -> None:
    if all(unicodedata.category(character) in INVISIBLE for character in text):
        raise BadRequest(f"{field}: empty once white space is trimmed; give a name.", code=code)
    # Lower case can be longer than what it came from.
    if len(text) > limit or len(text.lower()) > limit:
        raise BadRequest(f"{field}: a name of more than {limit} characters; keep it short.", code=code)
