"""The content of a version: its size limits, title, hash, and the text by which an object is found."""

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any, cast

import msgspec

from app.access import Principal, require_whole_tenant
from app.db.database import Row
from app.errors import BadRequest, Forbidden, TooLarge
from app.inputs import as_utc
from app.objects.diff import encode_canonical, hash_content
from app.objects.json_pointer import parse_pointer, point_at
from app.objects.types.search_settings import SEARCH_DEFAULTS
from app.objects.types.validation import measure

MAX_PROPERTIES_BYTES = 256 * 1024
MAX_EVIDENCE_BYTES = 64 * 1024
MAX_DEPTH = 32
MAX_EMBED_TEXT = 20_000
# PostgreSQL stores larger numbers, but a JSON reader turns them into infinity.
MAX_NUMBER = 10**300
# Values under such a name count as secrets. The SQL function read_units has the same pattern for facts.
SECRET_NAME = re.compile(r"api[ _-]?key|secret(?!ar|i[ov]|ly)|token(?!i[sz][aem])|passw(or)?d", re.IGNORECASE)


def check_content(*, properties: Any, evidence: Any) -> None:
    """Raise BadRequest or TooLarge for properties or evidence that exceed their limits."""
    check_json(properties, "properties")
    check_json(evidence, "evidence", max_bytes=MAX_EVIDENCE_BYTES)


def check_json(value: Any, field: str, *, max_bytes: int = MAX_PROPERTIES_BYTES) -> None:
    """Raise BadRequest or TooLarge for JSON that is too large, too deep, or has numbers of over 300 digits."""
    if measure(value)[0] > MAX_DEPTH:
        raise BadRequest(f"{field}: nested more than {MAX_DEPTH} levels deep; make it flatter.", code="too_deep")
    if len(encode_canonical(value)) > max_bytes:
        raise TooLarge(
            f"{field}: over {max_bytes // 1024} KiB; store long texts as notes or documents.", code="too_large"
        )
    if any(isinstance(number, (int, float)) and abs(number) >= MAX_NUMBER for number in _scalars(value)):
        raise BadRequest(f"{field}: contains a number of more than 300 digits.", code="number_out_of_range")


def read_period(begin: Any, end: Any, *, names: tuple[str, str]) -> tuple[datetime | None, datetime | None]:
    """Return both ends of a period in UTC; raise BadRequest when it does not end after it begins."""
    start = None if begin is None else as_utc(begin, names[0])
    stop = None if end is None else as_utc(end, names[1])
    if start is not None and stop is not None and stop <= start:
        raise BadRequest(f"{names[1]}: must be after {names[0]}.", code="invalid_period")
    return start, stop


def choose_project(who: Principal, requested: Any, project: str) -> str | None:
    """Return the project to write to: the caller's, or None (every project) for administrators who ask for it."""
    if requested is msgspec.UNSET or requested == project:
        return project
    if requested is not None:
        raise BadRequest(
            f"project_id: this request works in {project}; send X-Project-Id for another.", code="project_mismatch"
        )
    require_writer(who, None)
    return None


def require_writer(who: Principal, project: str | None) -> None:
    """Raise Forbidden when the row belongs to every project, and the caller is no administrator of all of them."""
    if project is not None or who.is_tenant_admin:
        return
    if who.is_admin:
        require_whole_tenant(who, "This object or relationship")
    raise Forbidden(
        "Only keys of kind admin can write objects and relationships of every project.", code="wrong_key_kind"
    )


def derive_title(*, properties: dict[str, Any], key: str | None) -> str | None:
    """Return the title of an object that was given none: its property title or name, or its key."""
    for name in ("title", "name"):
        if isinstance(value := properties.get(name), str) and value.strip():
            return value.strip()[:1000]
    return key


def describe(row: Row, object_type: Row | None) -> Row:
    """Return the hash of an object and how it is found, following the settings of its type."""
    content = hash_content(properties=row["properties"], status=row["status"], key=row["key"], labels=row["labels"])
    return {"content_hash": content.hex(), **describe_for_search(row, object_type)}


def describe_for_search(row: Row, object_type: Row | None) -> Row:
    """Return whether an object is found by its words, and the text of it to embed, following the settings of its
    type."""
    settings = SEARCH_DEFAULTS if object_type is None else object_type
    text = None
    if settings["embedding_policy"] != "disabled":
        paths = settings["embedding_relevant_paths"]
        text = embed_text(title=row["title"], properties=row["properties"], paths=paths)
    return {"searched": settings["fts_enabled"], "embed_text": text}


def embed_text(*, title: str | None, properties: dict[str, Any], paths: list[str] | None) -> str | None:
    """Return the text of an object to embed: its title and its relevant, non-secret strings; None when it has none."""
    pointers = [()] if paths is None else [parse_pointer(path) for path in paths]
    # The names on the way to a value can mark it as a secret too.
    relevant = [point_at(properties, tokens) for tokens in pointers if not any(map(SECRET_NAME.search, tokens))]
    words = [value for part in relevant for value in _scalars(part, secrets=False) if isinstance(value, str)]
    text = "\n".join(dict.fromkeys([*([title] if title else []), *filter(str.strip, words)]))
    return text[:MAX_EMBED_TEXT] or None


def _scalars(value: Any, *, secrets: bool = True) -> Iterable[Any]:
    """Yield every scalar of a document in order; without `secrets`, skip members whose names mark secrets."""
    if isinstance(value, dict):
        for name, member in cast(dict[str, Any], value).items():
            if secrets or not SECRET_NAME.search(name):
                yield from _scalars(member, secrets=secrets)
    elif isinstance(value, list):
        for member in cast(list[Any], value):
            yield from _scalars(member, secrets=secrets)
    else:
        yield value
