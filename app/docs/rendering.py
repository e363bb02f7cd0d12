"""Render the Markdown pages of this package as HTML."""

import base64
import hashlib
import re
from collections.abc import Iterator, Sequence
from functools import cache
from html import escape
from itertools import pairwise
from pathlib import Path
from string import Template
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

FOLDER = Path(__file__).parent
HOME = "index"
# The order of the sidebar. A test checks that every page of the folder is listed once.
SECTIONS: dict[str, tuple[str, ...]] = {
    "Start": (HOME, "quickstart", "api"),
    "Use": ("notes", "users", "documents", "facts", "recall", "objects", "extraction", "forgetting"),
    "Run": ("operations", "configuration", "command-line", "embeddings", "upgrades", "backup-and-restore"),
    "Build": ("architecture", "contributing"),
}
PAGES: tuple[str, ...] = tuple(name for names in SECTIONS.values() for name in names)

PAGE_LINK = re.compile(r"(?P<page>[a-z][a-z-]*)\.md(?P<anchor>#.*)?\Z")
REPOSITORY_LINK = re.compile(r"(?:\.\./)+(?P<path>.+)\Z")
# Letters, digits, underscores and hyphens stay, as on GitHub, so that one anchor works in both places.
NOT_IN_ANCHOR = re.compile(r"[^\w\- ]")
ALIGNMENT = re.compile(r"text-align:(left|center|right)")


class Heading(NamedTuple):
    """A heading of a page and the anchor that leads to it."""

    level: int
    text: str
    anchor: str


class Page(NamedTuple):
    """One rendered page."""

    name: str
    title: str
    headings: tuple[Heading, ...]
    html: bytes
    etag: str


def address(name: str) -> str:
    """Return the path a page is served at."""
    return "/docs" if name == HOME else f"/docs/{name}"


def source(name: str) -> str:
    """Return the Markdown of a page."""
    return (FOLDER / f"{name}.md").read_text(encoding="utf-8")


def link_target(href: str) -> str | None:
    """Return where a link of a page leads under /docs, or None for a file that only the repository has."""
    if match := PAGE_LINK.match(href):
        return address(match["page"]) + (match["anchor"] or "")
    return None if REPOSITORY_LINK.match(href) else href


def anchors(text: str) -> tuple[Heading, ...]:
    """Return the headings of a Markdown text with the anchors that GitHub gives them."""
    return tuple(_headings(_parser().parse(text)))


@cache
def render_page(name: str) -> Page:
    """Return one page as a whole HTML document."""
    parser = _parser()
    tokens = parser.parse(source(name))
    headings = tuple(_headings(tokens))
    _rewrite(tokens)
    title = headings[0].text
    values = {
        "title": escape(title),
        "sidebar": _sidebar(name),
        "contents": _contents(headings),
        "content": parser.renderer.render(tokens, parser.options, {}),
        "pager": _pager(name),
    }
    html = _template().substitute(values).encode()
    return Page(name, title, headings, html, f'"{hashlib.sha256(html).hexdigest()[:32]}"')


@cache
def content_security_policy() -> str:
    """Return a policy that allows the one inline style sheet of the template and nothing else."""
    style = _template().template.partition("<style>")[2].partition("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


@cache
def _template() -> Template:
    return Template((FOLDER / "page.html").read_text(encoding="utf-8"))


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    parser.add_render_rule("fence", _render_fence)
    return parser


def _render_fence(_self: object, tokens: Sequence[Token], index: int, _options: object, _env: object) -> str:
    token = tokens[index]
    language = token.info.strip()
    lines = escape(token.content, quote=False).removesuffix("\n").split("\n")
    if language in {"sh", "python"}:
        lines = [f'<span class="comment">{line}</span>' if line.lstrip().startswith("#") else line for line in lines]
    body = "\n".join(lines)
    return f'<pre tabindex="0"><code>{body}</code></pre>\n'


def _headings(tokens: Sequence[Token]) -> Iterator[Heading]:
    used: dict[str, int] = {}
    for opening, inline in pairwise(tokens):
        if opening.type != "heading_open":
            continue
        text = _plain_text(inline)
        anchor = NOT_IN_ANCHOR.sub("", text.lower()).replace(" ", "-")
        seen = used[anchor] = used.get(anchor, -1) + 1
        anchor = f"{anchor}-{seen}" if seen else anchor
        opening.attrSet("id", anchor)
        yield Heading(int(opening.tag[1:]), text, anchor)


def _plain_text(inline: Token) -> str:
    return "".join(child.content for child in inline.children or () if child.type in {"text", "code_inline"})


def _rewrite(tokens: Sequence[Token]) -> None:
    """Point links at the served pages, and replace inline styles, which our policy forbids, by classes."""
    for index, token in enumerate(tokens):
        if token.type == "heading_open" and token.tag != "h1":
            _link_heading(tokens[index + 1], str(token.attrGet("id")))
        if match := ALIGNMENT.search(str(token.attrs.pop("style", ""))):
            token.attrSet("class", match[1])
        depth = 0
        for child in token.children or ():
            if child.type == "link_open":
                href = str(child.attrGet("href"))
                target = link_target(href)
                if target is None:
                    child.tag, depth = "span", 1
                    child.attrs = {"class": "file", "title": f"in the repository: {href}"}
                else:
                    child.attrSet("href", target)
            elif child.type == "link_close" and depth:
                child.tag, depth = "span", 0


def _link_heading(inline: Token, anchor: str) -> None:
    opening = Token("link_open", "a", 1, attrs={"href": f"#{anchor}", "class": "anchor"})
    inline.children = [opening, *(inline.children or ()), Token("link_close", "a", -1)]


@cache
def _title(name: str) -> str:
    return anchors(source(name))[0].text


def _sidebar(current: str) -> str:
    parts: list[str] = []
    for section, names in SECTIONS.items():
        links = ""
        for name in names:
            mark = ' aria-current="page"' if name == current else ""
            links += f'<li><a href="{address(name)}"{mark}>{escape(_title(name))}</a></li>'
        parts.append(f"<h2>{escape(section)}</h2>\n<ul>{links}</ul>")
    return "\n".join(parts)


def _contents(headings: Sequence[Heading]) -> str:
    items = [heading for heading in headings if heading.level == 2]
    if len(items) < 2:
        return ""
    links = "".join(f'<li><a href="#{heading.anchor}">{escape(heading.text)}</a></li>' for heading in items)
    return f'<nav class="contents" aria-label="On this page"><h2>On this page</h2><ul>{links}</ul></nav>'


def _pager(name: str) -> str:
    place = PAGES.index(name)
    before = PAGES[place - 1] if place else None
    after = PAGES[place + 1] if place + 1 < len(PAGES) else None
    left = f'<a rel="prev" href="{address(before)}">← {escape(_title(before))}</a>' if before else "<span></span>"
    right = f'<a rel="next" href="{address(after)}">{escape(_title(after))} →</a>' if after else "<span></span>"
    return left + right
