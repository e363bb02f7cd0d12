"""Names of entities and predicates: how they are shown, and when two of them are the same."""

import re
import unicodedata
from uuid import UUID

import msgspec

from app.errors import BadRequest

MAX_NAME = 512
MAX_PREDICATE = 200
# The same rule as uri_scheme() in SQL.
_URI_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?=\S)")
SCHEME_ALONE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\s*$")
ID = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")
# Default_Ignorable_Code_Point of Unicode: zero-width, bidirectional, tag and filler characters, variation selectors.
# The same as in fold_letters() in SQL.
IGNORABLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]+"
)
# Characters that show nothing: controls, formats, surrogates, unassigned ones and separators.
INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Cn", "Zs", "Zl", "Zp"})


class Name(msgspec.Struct, frozen=True):
    """A name as it is shown, and as it is compared."""

    shown: str
    norm: str


def is_uri(name: str) -> bool:
    """Return whether a name is a URI: a scheme, a colon, and something after it."""
    return _URI_SCHEME.match(name) is not None


def last_segment(name: str) -> str:
    """Return the last segment of a URI; any other name is returned as it is."""
    if not is_uri(name):
        return name
    return name.rstrip("/").replace(":", "/").rpartition("/")[2] or name


def normalize_entity_name(text: str) -> str:
    """Return a name in lower case with single spaces, which are hyphens in a URI; without invisible characters and in
    compatibility form, so that names that look alike in width or form are one."""
    collapsed = " ".join(_fold(text).split())
    return collapsed.replace(" ", "-") if is_uri(collapsed) else collapsed


def entity_name(text: str, field: str) -> Name:
    """Return the name of an entity or raise BadRequest; a URI is shown as it is compared."""
    _require_text(text, field, limit=MAX_NAME, code="invalid_entity")
    norm = normalize_entity_name(text)
    if SCHEME_ALONE.match(norm):
        raise BadRequest(f"{field}: a URI needs something after its scheme.", code="invalid_entity")
    if not norm or len(norm) > MAX_NAME:
        raise BadRequest(
            f"{field}: a name must have 1 to {MAX_NAME} visible characters, with compatibility forms written out.",
            code="invalid_entity",
        )
    return Name(norm if is_uri(norm) else " ".join(unicodedata.normalize("NFC", text).split()), norm)


def predicate_name(text: str, field: str) -> Name:
    """Return the name of a predicate or raise BadRequest."""
    _require_text(text, field, limit=MAX_PREDICATE, code="invalid_predicate")
    shown = " ".join(unicodedata.normalize("NFC", text).split())
    return Name(shown, _lower(shown))


def _fold(text: str) -> str:
    if text.isascii():
        return text.lower()
    # Twice, since the compatibility form of a letter may have another lower case, and be invisible.
    for _ in range(2):
        text = unicodedata.normalize("NFKC", IGNORABLE.sub("", text).lower())
    return text


def _lower(text: str) -> str:
    # Lower case first: it can leave decomposed letters, which NFC then composes.
    return unicodedata.normalize("NFC", text.lower())


def as_id(text: str) -> str | None:
    """Return the UUID that a text is, or None when it is a name."""
    return str(UUID(text.strip())) if ID.fullmatch(text.strip()) else None


def plain_text(text: str | None, field: str) -> str | None:
    """Return a text without white space around it; raise BadRequest when nothing is left."""
    if text is None:
        return None
    if not text.strip():
        raise BadRequest(f"{field}: empty after white space is trimmed; leave it out or give a text.")
    return text.strip()


def _require_text(text: str, field: str, *, limit: int, code: str) -> None:
    if all(unicodedata.category(character) in INVISIBLE for character in text):
        raise BadRequest(f"{field}: empty after white space is trimmed; give a name.", code=code)
    # Lower case can be longer than upper case.
    if len(text) > limit or len(text.lower()) > limit:
        raise BadRequest(f"{field}: a name must have at most {limit} characters.", code=code)
