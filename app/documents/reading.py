"""Reads one document in a process of its own: run as a program, with limits that it sets itself before it begins.

It knows nothing of the service and imports nothing of it. On its standard input: one line of JSON (kind, charset,
limits), then the document. On its standard output: JSON, either `text` and `title`, or `code` and `message`.
"""

import json
import re
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

BLOCKS = frozenset({
    "address", "article", "aside", "blockquote", "body", "br", "caption", "dd", "details", "dialog", "div", "dl", "dt",
    "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "html",
    "legend", "li", "main", "nav", "ol", "option", "p", "pre", "section", "summary", "table", "tbody", "tfoot", "thead",
    "title", "tr", "ul",
})  # fmt: skip
CELLS = frozenset({"td", "th"})
UNSEEN = frozenset({
    "script", "style", "noscript", "template", "head", "iframe", "object", "embed", "svg", "canvas", "math", "audio",
    "video", "select", "datalist",
})  # fmt: skip
BYTE_ORDER_MARKS = (
    (b"\xef\xbb\xbf", "utf-8"),
    (b"\xff\xfe\x00\x00", "utf-32-le"),
    (b"\x00\x00\xfe\xff", "utf-32-be"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)
META_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_:.-]{1,40})", re.IGNORECASE)
FRONT_MATTER = re.compile(r"\A---[ \t]*\n(?P<fields>.{0,20000}?)\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
FRONT_TITLE = re.compile(r"^title:[ \t]*(?P<title>.+?)[ \t]*$", re.MULTILINE)
NOT_SHOWN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
LINE_SPACE = re.compile(r"[^\S\n]+")
EMPTY_LINES = re.compile(r"\n\s*\n\s*\n+")
# What no text holds and no database takes: NUL, the other controls, and halves of surrogate pairs.
UNWANTED = re.compile(r"[\x00-\x08\x0e-\x1f\x7f\ufffe\uffff\ud800-\udfff]")
MAX_TITLE = 500
# Far deeper than any page goes that people read; browsers stop at 512.
MAX_DEPTH = 10_000


class Extract(NamedTuple):
    """What a document says, and what it is called."""

    text: str
    title: str | None


class Refused(Exception):
    """The document cannot be read; with the code that says why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def decode(raw: bytes, charset: str | None = None, *, meta: bool = False) -> str:
    """Bytes as text: by their byte order mark, as declared, as UTF-8, or else as what old pages are written in."""
    for mark, name in BYTE_ORDER_MARKS:
        if raw.startswith(mark):
            return raw[len(mark) :].decode(name, "replace")
    found = META_CHARSET.search(raw[:4096]) if meta else None
    for name in (charset, found and found[1].decode("ascii"), "utf-8"):
        if not name or (name is charset and name.lower().replace("_", "-") in ("iso-8859-1", "us-ascii", "latin1")):
            # Declared so by servers that do not know: UTF-8 is tried first, then the superset of it.
            continue
        try:
            return raw.decode(name)
        except (LookupError, UnicodeDecodeError, ValueError):
            continue
    return raw.decode("cp1252", "replace")


def clean(text: str) -> str:
    """The text without what cannot be stored, its lines trimmed, and at most one empty line in a row."""
    text = UNWANTED.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    lines = (LINE_SPACE.sub(" ", line).strip() for line in text.split("\n"))
    return EMPTY_LINES.sub("\n\n", "\n".join(lines)).strip()


def clean_title(title: str | None) -> str | None:
    """A title on one line, of bounded length; None when nothing is left."""
    words = " ".join(UNWANTED.sub("", title or "").split())[:MAX_TITLE].strip()
    return words or None


def read_text(raw: bytes, *, charset: str | None, limit: int) -> Extract:
    """A plain text."""
    return Extract(decode(raw, charset), None)


def read_html(raw: bytes, *, charset: str | None, limit: int) -> Extract:
    """What a page shows: no scripts, no styles, nothing hidden; blocks end their line."""
    return html_extract(decode(raw, charset, meta=True))


def html_extract(page: str) -> Extract:
    """The visible text of a page, and its title or first heading."""
    from selectolax.lexbor import LexborHTMLParser

    tree = LexborHTMLParser(page.replace("\0", ""))
    found = tree.css_first("head > title") or tree.css_first("h1")
    title = found.text() if found is not None else None
    body: Any = tree.body or tree.root
    parts: list[str] = []
    node: Any = body
    root = body.mem_id
    depth = 0
    # By hand and not by recursion: pages may be nested deeper than Python's stack.
    while node is not None:
        shown = _open(node, parts)
        child: Any = node.child if shown else None
        if child is not None:
            node = child
            depth += 1
            if depth > MAX_DEPTH:
                raise Refused("document_unreadable", f"Its elements are nested more than {MAX_DEPTH} deep.")
            continue
        while node is not None:
            _close(node, parts)
            # By address: two nodes are compared by writing both out.
            if node.mem_id == root:
                node = None
            elif node.next is not None:
                node = node.next
                break
            else:
                node = node.parent
                depth -= 1
    return Extract("".join(parts), title)


def _open(node: Any, parts: list[str]) -> bool:
    """Writes what a node begins with; answers whether what is in it can be seen."""
    tag = node.tag
    if tag == "-text":
        words: str = node.text_content or ""
        parts.append(words if _in_pre(node) else re.sub(r"\s+", " ", words))
        return False
    if tag is None or tag.startswith("-") or tag in UNSEEN:
        return False
    attributes: dict[str, str | None] = node.attributes
    if "hidden" in attributes or NOT_SHOWN.search(attributes.get("style") or ""):
        return False
    if tag in BLOCKS:
        parts.append("\n")
    return True


def _in_pre(node: Any) -> bool:
    parent = node.parent
    return parent is not None and (parent.tag in ("pre", "textarea") or (parent.tag == "code" and _in_pre(parent)))


def _close(node: Any, parts: list[str]) -> None:
    if node.tag in BLOCKS and node.tag != "br":
        parts.append("\n")
    elif node.tag in CELLS:
        parts.append(" ")


def read_markdown(raw: bytes, *, charset: str | None, limit: int) -> Extract:
    """The words of a Markdown text without its markup; its title is the first heading."""
    from markdown_it import MarkdownIt

    source = decode(raw, charset).replace("\r\n", "\n")
    title = None
    if front := FRONT_MATTER.match(source):
        source = source[front.end() :]
        if named := FRONT_TITLE.search(front["fields"]):
            title = named["title"].strip("\"'")
    parts: list[str] = []
    heading = False
    for token in MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(source):
        if token.type == "inline":
            words = _inline(token.children or [])
            title = title or (words if heading else None)
            parts.append(words)
        elif token.type in ("fence", "code_block"):
            parts.append(token.content)
        elif token.type == "html_block":
            parts.append(html_extract(token.content).text)
        elif token.type in ("th_close", "td_close"):
            parts.append(" ")
        heading = token.type == "heading_open"
        if token.block and token.type not in ("inline", "th_open", "th_close", "td_open", "td_close"):
            parts.append("\n\n" if token.type in ("heading_close", "paragraph_close", "fence") else "\n")
    return Extract("".join(parts), title)


def _inline(tokens: list[Any]) -> str:
    words: list[str] = []
    for token in tokens:
        if token.type in ("text", "code_inline", "text_special", "image"):
            words.append(token.content)
        elif token.type in ("softbreak", "hardbreak"):
            words.append("\n")
    return "".join(words)


def read_pdf(raw: bytes, *, charset: str | None, limit: int) -> Extract:
    """The text of a PDF, page by page, and the title it states."""
    from pypdf import PdfReader
    from pypdf.errors import DependencyError, FileNotDecryptedError, PyPdfError
    from pypdf.generic import NullObject

    if b"%PDF-" not in raw[:1024]:
        raise Refused("document_unreadable", "This is no PDF.")
    from io import BytesIO

    parts: list[str] = []
    length = 0
    try:
        reader = PdfReader(BytesIO(raw), strict=False)
        if reader.is_encrypted and not reader.decrypt(""):
            raise Refused("document_unreadable", "The PDF is protected by a password.")
        for page in reader.pages:
            words = page.extract_text()
            length += len(words)
            if length > limit:
                raise _too_much(limit)
            parts.append(words)
        stated: Any = reader.metadata.title if reader.metadata is not None else None
        title = None if stated is None or isinstance(stated, NullObject) else str(stated)
    except (FileNotDecryptedError, DependencyError) as problem:
        raise Refused("document_unreadable", "The PDF is protected by a password.") from problem
    except PyPdfError as problem:
        raise Refused("document_unreadable", f"The PDF is damaged ({type(problem).__name__}).") from problem
    return Extract("\n\n".join(parts), title)


READERS: dict[str, Callable[..., Extract]] = {
    "text": read_text,
    "html": read_html,
    "markdown": read_markdown,
    "pdf": read_pdf,
}


def read(kind: str, raw: bytes, *, charset: str | None, limit: int) -> Extract:
    """What a document of this kind says, cleaned; Refused with a reason when it cannot be read or says nothing."""
    found = READERS[kind](raw, charset=charset, limit=limit)
    text = clean(found.text)
    if len(text.encode()) > limit:
        raise _too_much(limit)
    if not text:
        raise Refused("document_empty", "There is no text in it.")
    return Extract(text, clean_title(found.title))


def _too_much(limit: int) -> Refused:
    return Refused("document_too_large", f"It holds more than {limit} bytes of text (document_max_content_bytes).")


def _limit(memory: int, cpu: int, seconds: int) -> None:
    """Limits of this process. Not every system knows all of them; where one is missing, the others hold."""
    # Also when nobody is left to stop us.
    signal.alarm(seconds)
    limits = (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CPU, cpu),
        (resource.RLIMIT_AS, memory),
    )
    for name, value in limits:
        try:
            resource.setrlimit(name, (value, value))
        except (ValueError, OSError):
            continue


def main() -> None:
    """Reads the document on standard input."""
    order = json.loads(sys.stdin.buffer.readline())
    _limit(order["memory"], order["cpu"], order["seconds"])
    try:
        found = read(order["kind"], sys.stdin.buffer.read(), charset=order["charset"], limit=order["limit"])
        answer: dict[str, Any] = {"text": found.text, "title": found.title}
    except Refused as problem:
        answer = {"code": problem.code, "message": str(problem)}
    except (MemoryError, RecursionError):
        answer = {"code": "document_too_large", "message": "Reading it takes more memory than a document may."}
    except Exception as problem:  # noqa: BLE001 - whatever a parser stumbles over, the document is at fault
        answer = {"code": "document_unreadable", "message": f"It cannot be read ({type(problem).__name__})."}
    sys.stdout.buffer.write(json.dumps(answer).encode())
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
