"""The program that parses one document in a child process, under limits that it sets for itself.

It imports nothing of the service. Standard input: one line of JSON (kind, charset, limits), then the document.
Standard output: JSON with `text` and `title`, or with `code` and `message`.
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
# Headings stay recognisable in the text: as many # as their level, in front.
HEADINGS = {f"h{level}": level for level in range(1, 7)}
INLINE = ("inline", "th_open", "th_close", "td_open", "td_close")
ENDS_PARAGRAPH = ("heading_close", "paragraph_close", "fence")
CODE_COMMENT = re.compile(r"^[ \t]*(#{1,6} .*)$", re.MULTILINE)
INVISIBLE = frozenset({
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
HIDDEN_STYLE = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
LINE_SPACE = re.compile(r"[^\S\n]+")
EMPTY_LINES = re.compile(r"\n\s*\n\s*\n+")
# What the database cannot store or nobody can read: NUL, other control characters, lone surrogates.
UNPRINTABLE = re.compile(r"[\x00-\x08\x0e-\x1f\x7f\ufffe\uffff\ud800-\udfff]")
MAX_TITLE = 500
# Browsers limit nesting to 512.
MAX_DEPTH = 10_000


class ParsedText(NamedTuple):
    """The text and the title of a document."""

    text: str
    title: str | None


class ParseError(Exception):
    """The document cannot be parsed, for the reason that `code` names."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def decode(raw: bytes, charset: str | None = None, *, meta: bool = False) -> str:
    """Decode by the byte order mark, else the declared charset, else UTF-8, else Windows-1252."""
    for mark, name in BYTE_ORDER_MARKS:
        if raw.startswith(mark):
            return raw[len(mark) :].decode(name, "replace")
    found = META_CHARSET.search(raw[:4096]) if meta else None
    for name in (charset, found and found[1].decode("ascii"), "utf-8"):
        if not name or (name is charset and name.lower().replace("_", "-") in ("iso-8859-1", "us-ascii", "latin1")):
            # Often a server's default and not the real charset: try UTF-8, then Windows-1252, which is a superset.
            continue
        try:
            return raw.decode(name)
        except (LookupError, UnicodeDecodeError, ValueError):
            continue
    return raw.decode("cp1252", "replace")


def clean(text: str) -> str:
    """Remove unprintable characters, trim lines and collapse empty ones."""
    text = UNPRINTABLE.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    lines = (LINE_SPACE.sub(" ", line).strip() for line in text.split("\n"))
    return EMPTY_LINES.sub("\n\n", "\n".join(lines)).strip()


def clean_title(title: str | None) -> str | None:
    """Return a title as one line of at most 500 characters, or None when it is empty."""
    words = " ".join(UNPRINTABLE.sub("", title or "").split())[:MAX_TITLE].strip()
    return words or None


def parse_text(raw: bytes, *, charset: str | None, limit: int) -> ParsedText:
    """Return a plain text, which has no title."""
    return ParsedText(decode(raw, charset), None)


def parse_html(raw: bytes, *, charset: str | None, limit: int) -> ParsedText:
    """Return the visible text of an HTML page in its declared charset."""
    return extract_html(decode(raw, charset, meta=True))


def extract_html(page: str) -> ParsedText:
    """Return the visible text of a page, one line for each block, and its title or first heading."""
    from selectolax.lexbor import LexborHTMLParser

    tree = LexborHTMLParser(page.replace("\0", ""))
    found = tree.css_first("head > title") or tree.css_first("h1")
    title = found.text() if found is not None else None
    body: Any = tree.body or tree.root
    parts: list[str] = []
    node: Any = body
    root = body.mem_id
    depth = 0
    # A loop and not recursion: pages may be nested deeper than Python's stack.
    while node is not None:
        shown = _open(node, parts)
        child: Any = node.child if shown else None
        if child is not None:
            node = child
            depth += 1
            if depth > MAX_DEPTH:
                raise ParseError("document_unreadable", f"Its elements are nested more than {MAX_DEPTH} deep.")
            continue
        while node is not None:
            _close(node, parts)
            # By address, because comparing two nodes serialises both.
            if node.mem_id == root:
                node = None
            elif node.next is not None:
                node = node.next
                break
            else:
                node = node.parent
                depth -= 1
    return ParsedText("".join(parts), title)


def _open(node: Any, parts: list[str]) -> bool:
    """Append what comes before a node's children and return whether these are visible."""
    tag = node.tag
    if tag == "-text":
        words: str = node.text_content or ""
        parts.append(words if _in_pre(node) else re.sub(r"\s+", " ", words))
        return False
    if tag is None or tag.startswith("-") or tag in INVISIBLE:
        return False
    attributes: dict[str, str | None] = node.attributes
    if "hidden" in attributes or HIDDEN_STYLE.search(attributes.get("style") or ""):
        return False
    if tag in HEADINGS:
        parts.append("\n\n" + "#" * HEADINGS[tag] + " ")
    elif tag in BLOCKS:
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


def parse_markdown(raw: bytes, *, charset: str | None, limit: int) -> ParsedText:
    """Return a Markdown text with no markup but that of headings and list items, and its title or first heading."""
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
            parts.append(" ".join(words.split()) if heading else words)
        elif token.type in ("fence", "code_block"):
            # A comment in code is no heading.
            parts.append(CODE_COMMENT.sub(r"`\1`", token.content))
        elif token.type == "html_block":
            parts.append(extract_html(token.content).text)
        elif token.type in ("th_close", "td_close"):
            parts.append(" ")
        heading = token.type == "heading_open"
        in_line = token.type == "paragraph_open" and parts[-1:] == ["- "]
        if token.block and not in_line and token.type not in INLINE:
            parts.append("\n\n" if token.type in ENDS_PARAGRAPH and not token.hidden else "\n")
        if token.type == "heading_open":
            parts.append("#" * HEADINGS[token.tag] + " ")
        elif token.type == "list_item_open":
            parts.append("- ")
    return ParsedText("".join(parts), title)


def _inline(tokens: list[Any]) -> str:
    words: list[str] = []
    for token in tokens:
        if token.type in ("text", "code_inline", "text_special", "image"):
            words.append(token.content)
        elif token.type in ("softbreak", "hardbreak"):
            words.append("\n")
    return "".join(words)


def parse_pdf(raw: bytes, *, charset: str | None, limit: int) -> ParsedText:
    """Return the text of a PDF, page by page, and the title of its metadata."""
    from pypdf import PdfReader
    from pypdf.errors import DependencyError, FileNotDecryptedError, PyPdfError
    from pypdf.generic import NullObject

    if b"%PDF-" not in raw[:1024]:
        raise ParseError("document_unreadable", "It is not a PDF.")
    from io import BytesIO

    parts: list[str] = []
    length = 0
    try:
        reader = PdfReader(BytesIO(raw), strict=False)
        if reader.is_encrypted and not reader.decrypt(""):
            raise ParseError("document_unreadable", "The PDF is protected by a password.")
        for page in reader.pages:
            words = page.extract_text()
            length += len(words)
            if length > limit:
                raise _too_large(limit)
            parts.append(words)
        stated: Any = reader.metadata.title if reader.metadata is not None else None
        title = None if stated is None or isinstance(stated, NullObject) else str(stated)
    except (FileNotDecryptedError, DependencyError) as problem:
        raise ParseError("document_unreadable", "The PDF is protected by a password.") from problem
    except PyPdfError as problem:
        raise ParseError("document_unreadable", f"The PDF is damaged ({type(problem).__name__}).") from problem
    return ParsedText("\n\n".join(parts), title)


PARSERS: dict[str, Callable[..., ParsedText]] = {
    "text": parse_text,
    "html": parse_html,
    "markdown": parse_markdown,
    "pdf": parse_pdf,
}


def parse(kind: str, raw: bytes, *, charset: str | None, limit: int) -> ParsedText:
    """Return the cleaned text of a document, or raise ParseError when it is invalid, too long or empty."""
    found = PARSERS[kind](raw, charset=charset, limit=limit)
    text = clean(found.text)
    if len(text.encode()) > limit:
        raise _too_large(limit)
    if not text:
        raise ParseError("document_empty", "It contains no text.")
    return ParsedText(text, clean_title(found.title))


def _too_large(limit: int) -> ParseError:
    return ParseError(
        "document_too_large", f"It contains more than {limit} bytes of text (document_max_content_bytes)."
    )


def _limit(memory: int, cpu: int, seconds: int) -> None:
    """Limit this process; limits that the system does not support are left out."""
    # Ends this process also when its parent is gone.
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
    """Parse the document on standard input."""
    options = json.loads(sys.stdin.buffer.readline())
    _limit(options["memory"], options["cpu"], options["seconds"])
    try:
        parsed = parse(options["kind"], sys.stdin.buffer.read(), charset=options["charset"], limit=options["limit"])
        output: dict[str, Any] = {"text": parsed.text, "title": parsed.title}
    except ParseError as problem:
        output = {"code": problem.code, "message": str(problem)}
    except (MemoryError, RecursionError):
        output = {"code": "document_too_large", "message": "Parsing it takes more memory than a document may use."}
    except Exception as problem:  # noqa: BLE001 - any failure of a parser is a fault of the document
        output = {"code": "document_unreadable", "message": f"It cannot be parsed ({type(problem).__name__})."}
    sys.stdout.buffer.write(json.dumps(output).encode())
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
