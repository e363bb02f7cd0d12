"""What a version is made of: bounds, titles, hashes, and the text by which an object is found."""

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any, cast

import msgspec

from app.access import Principal
from app.db.database import Row
from app.errors import BadRequest, Forbidden, TooLarge
from app.inputs import as_utc
from app.objects.diff import encode_canonical, hash_content
from app.objects.json_pointer import parse_pointer, point_at
from app.objects.types.validation import measure

MAX_PROPERTIES_BYTES = 256 * 1024
MAX_EVIDENCE_BYTES = 64 * 1024
MAX_DEPTH = 32
MAX_EMBED_TEXT = 20_000
# PostgreSQL holds far larger numbers than anybody reads back.
MAX_NUMBER = 10**300
# What is called so is a secret whatever it says. Facts have the same words (alembic/functions/read_units.sql).
SECRET_NAME = re.compile(r"api[ _-]?key|secret(?!ar|i[ov]|ly)|token(?!i[sz][aem])|passw(or)?d", re.IGNORECASE)


def check_json(value: Any, field: str, *, most: int = MAX_PROPERTIES_BYTES) -> None:
    """Refuses JSON that is too large, too deep, or has numbers beyond all reason."""
    if measure(value)[0] > MAX_DEPTH:
        raise BadRequest(f"{field}: nested more than {MAX_DEPTH} levels deep; make it flatter.", code="too_deep")
    if len(encode_canonical(value)) > most:
        raise TooLarge(f"{field}: over {most // 1024} KiB; store long texts as notes or documents.", code="too_large")
    if any(isinstance(number, (int, float)) and abs(number) >= MAX_NUMBER for number in _scalars(value)):
        raise BadRequest(f"{field}: holds a number of more than 300 digits.", code="number_out_of_range")


def check_period(begin: datetime | None, end: datetime | None, *, names: tuple[str, str]) -> None:
    """Refuses a time that ends before it begins."""
    if begin is not None and end is not None and end <= begin:
        raise BadRequest(f"{names[1]}: not after {names[0]}.", code="invalid_period")


def moment(value: Any, field: str) -> datetime | None:
    """A time in UTC, or none."""
    return None if value is None else as_utc(value, field)


def choose_project(who: Principal, wanted: Any, project: str) -> str | None:
    """The project that something is written to: the caller's, or with null every project, for administrators."""
    if wanted is msgspec.UNSET or wanted == project:
        return project
    if wanted is not None:
        raise BadRequest(
            f"project_id: this request works in {project}; send X-Project-Id for another.", code="project_mismatch"
        )
    require_shared(who, None)
    return None


def require_shared(who: Principal, project: str | None) -> None:
    """Only administrators write what belongs to every project."""
    if project is None and not who.is_admin:
        raise Forbidden("What belongs to every project is written by keys of kind admin.", code="wrong_key_kind")


def derive_title(*, properties: dict[str, Any], key: str | None) -> str | None:
    """What an object is called when nobody says: its property title or name, or its key."""
    for name in ("title", "name"):
        if isinstance(value := properties.get(name), str) and value.strip():
            return value.strip()[:1000]
    return key


def describe(row: Row, object_type: Row | None) -> Row:
    """Hash and searchable text of an object, as its type has it."""
    searched = object_type is None or object_type["fts_enabled"]
    policy = "optional" if object_type is None else object_type["embedding_policy"]
    paths = None if object_type is None else object_type["embedding_relevant_paths"]
    content = hash_content(properties=row["properties"], status=row["status"], key=row["key"], labels=row["labels"])
    text = None if policy == "disabled" else embed_text(title=row["title"], properties=row["properties"], paths=paths)
    return {"content_hash": content.hex(), "searched": searched, "embed_text": text}


def embed_text(*, title: str | None, properties: dict[str, Any], paths: list[str] | None) -> str | None:
    """The text that is embedded of an object: its title and the words of what counts and is no secret; None when there
    are none."""
    pointers = [()] if paths is None else [parse_pointer(path) for path in paths]
    # The way to a value names it as well.
    counted = [point_at(properties, tokens) for tokens in pointers if not any(map(SECRET_NAME.search, tokens))]
    words = [value for part in counted for value in _scalars(part, secrets=False) if isinstance(value, str)]
    text = "\n".join(dict.fromkeys([*([title] if title else []), *filter(str.strip, words)]))
    return text[:MAX_EMBED_TEXT] or None


def _scalars(value: Any, *, secrets: bool = True) -> Iterable[Any]:
    """Every value within a document that is neither object nor array, in its order; without those named as secrets."""
    if isinstance(value, dict):
        for name, member in cast(dict[str, Any], value).items():
            if secrets or not SECRET_NAME.search(name):
                yield from _scalars(member, secrets=secrets)
    elif isinstance(value, list):
        for member in cast(list[Any], value):
            yield from _scalars(member, secrets=secrets)
    else:
        yield value
