"""The source of a new document: content that was sent, or the address of a page to fetch."""

import base64
import binascii
import hashlib

from app.db.database import Row
from app.documents.fetcher import FetchRefused, FetchRules
from app.documents.schemas import DocumentCreate, SourceType
from app.errors import BadRequest, Forbidden, TooLarge

CONTENT_TYPES = {"text": "text/plain", "markdown": "text/markdown", "html": "text/html", "pdf": "application/pdf"}


def read_source(data: DocumentCreate, rules: FetchRules, limit: int) -> Row:
    """Return the source columns of a document; raise BadRequest unless exactly one source of its type was sent."""
    if data.content is not None and data.text is not None:
        raise BadRequest("text: send content or text, not both.")
    content = data.content if data.content is not None else data.text
    has_content = content is not None or data.content_base64 is not None
    url = data.url or (None if has_content else data.source_url)
    source_type = data.source_type or ("url" if url is not None and not has_content else "text")
    if source_type == "url":
        if url is None or has_content:
            raise BadRequest("url: a document of type url needs its url, and no content.")
        return _page_source(url, rules)
    if data.url is not None:
        raise BadRequest(f"url: a document of type {source_type} has content; to fetch a page, use source_type url.")
    return _content_source(source_type, content, data.content_base64, limit) | {"source_url": data.source_url}


def _content_source(source_type: SourceType, content: str | None, encoded: str | None, limit: int) -> Row:
    if (content is None) == (encoded is None):
        wanted = "content_base64" if source_type == "pdf" else "content or content_base64"
        raise BadRequest(f"content: a document of type {source_type} needs {wanted}.")
    if source_type == "pdf" and content is not None:
        raise BadRequest("content: a pdf must be sent as content_base64.")
    if content is not None:
        # Text in JSON has no charset of its own.
        raw, content_type = content.encode(errors="replace"), f"{CONTENT_TYPES[source_type]}; charset=utf-8"
    else:
        raw, content_type = _decode_base64(encoded or "", limit), CONTENT_TYPES[source_type]
    if len(raw) > limit:
        raise _too_large(limit)
    if not raw.strip():
        raise BadRequest("content: must not be empty.")
    return {
        "source_type": source_type,
        "raw_content": raw,
        "content_type": content_type,
        "content_bytes": len(raw),
        "content_hash": hashlib.sha256(source_type.encode() + b"\0" + raw).hexdigest(),
    }


def _page_source(address: str, rules: FetchRules) -> Row:
    try:
        url = str(rules.checked(address.strip()))
    except FetchRefused as problem:
        if problem.code == "document_url_invalid":
            raise BadRequest(f"url: {problem.message}", code=problem.code) from problem
        raise Forbidden(f"url: {problem.message}", code=problem.code) from problem
    # The content is not known yet, so live documents of the same url are duplicates.
    return {
        "source_type": "url",
        "source_url": url,
        "content_hash": hashlib.sha256(b"url\0" + url.encode()).hexdigest(),
    }


def _decode_base64(content: str, limit: int) -> bytes:
    # Refused before it is decoded; base64 may have line breaks.
    if len(content) > (limit + 3) * 4 // 3 + len(content) // 70:
        raise _too_large(limit)
    try:
        return base64.b64decode("".join(content.split()), validate=True)
    except (binascii.Error, ValueError):
        raise BadRequest("content_base64: not base64.") from None


def _too_large(limit: int) -> TooLarge:
    return TooLarge(
        f"content: over the limit of {limit} bytes for a document of this project (document_max_content_bytes).",
        code="document_too_large",
        details={"document_max_content_bytes": limit},
    )
