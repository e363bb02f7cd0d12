"""The documentation is complete, its links lead somewhere, its generated pages are current, and it is served."""

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from markdown_it import MarkdownIt

from app.docs.rendering import FOLDER, PAGES, address, anchors, render_page
from tests.docs import generate
from tests.service import ROOT

TEXTS = {path.relative_to(ROOT): path for path in sorted(FOLDER.glob("*.md"))} | {
    Path(name): ROOT / name
    for name in (
        "README.md", "CHANGELOG.md", "deploy/README.md", ".github/CONTRIBUTING.md", ".github/SECURITY.md"
    )
}  # fmt: skip


def links(text: str) -> Iterator[str]:
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        for child in token.children or ():
            if child.type == "link_open":
                yield str(child.attrGet("href"))


def test_every_page_of_the_folder_is_in_the_sidebar_once() -> None:
    assert sorted(PAGES) == sorted(path.stem for path in FOLDER.glob("*.md"))


def test_the_readme_stays_short() -> None:
    assert len((ROOT / "README.md").read_bytes()) <= 10_000


@pytest.mark.parametrize("name", TEXTS, ids=str)
def test_links_lead_to_a_file_and_a_heading(name: Path) -> None:
    path = TEXTS[name]
    for href in links(path.read_text()):
        if href.startswith(("https://", "http://127.0.0.1")):
            continue
        file, _, anchor = href.partition("#")
        target = (path.parent / file).resolve() if file else path
        assert target.exists(), f"{name}: {href}"
        assert target.is_relative_to(ROOT), f"{name}: {href}"
        if anchor:
            assert anchor in {heading.anchor for heading in anchors(target.read_text())}, f"{name}: {href}"


@pytest.mark.parametrize("page", generate.PAGES)
def test_generated_pages_are_current(page: str) -> None:
    assert (FOLDER / f"{page}.md").read_text() == generate.PAGES[page](), "run make docs"


def test_pages_start_with_one_title() -> None:
    for page in PAGES:
        levels = [heading.level for heading in render_page(page).headings]
        assert levels[0] == 1, page
        assert levels.count(1) == 1, page


def test_markup_in_a_page_is_escaped() -> None:
    from app.docs import rendering

    parser = rendering._parser()
    assert "<script>" not in parser.render("<script>alert(1)</script>\n\n```sh\n<b>\n```\n\n`<i>`")


def test_the_palette_is_that_of_the_reference() -> None:
    ours = re.findall(r"--[a-z]+: [^;]+;", (FOLDER / "page.html").read_text())
    reference = (ROOT / "app/web/reference.html").read_text()
    assert ours
    assert [line for line in ours if line not in reference] == []


def test_the_root_leads_to_the_documentation(client: httpx.Client) -> None:
    answer = client.get("/")
    assert answer.status_code == 302
    assert answer.headers["location"] == "/docs"


def test_every_page_is_served_with_links_that_are_answered(client: httpx.Client) -> None:
    ids: dict[str, set[str]] = {}
    found: set[tuple[str, str]] = set()
    for page in PAGES:
        answer = client.get(address(page))
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/html")
        ids[address(page)] = set(re.findall(r'id="([^"]+)"', answer.text))
        found |= {(address(page), href) for href in re.findall(r'href="([^"]+)"', answer.text)}
    for where, href in sorted(found):
        target, _, anchor = href.partition("#")
        if href.startswith(("https://", "data:")):
            continue
        if (target or where) not in ids:
            assert client.get(target).status_code == 200, (where, href)
        elif anchor:
            assert anchor in ids[target or where], (where, href)


def test_pages_load_nothing_and_run_nothing(client: httpx.Client) -> None:
    answer = client.get("/docs/recall")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "style=" not in answer.text
    assert "<script" not in answer.text
    assert re.findall(r"""(?:src|<link[^>]*href)\s*=\s*["']?(?:https?:)?//""", answer.text) == []


def test_a_browser_that_has_the_page_gets_no_body(client: httpx.Client) -> None:
    first = client.get("/docs/facts")
    again = client.get("/docs/facts", headers={"If-None-Match": first.headers["etag"]})
    assert again.status_code == 304
    assert again.content == b""
    assert "max-age" in first.headers["cache-control"]


def test_an_unknown_page_is_a_404_in_the_envelope(client: httpx.Client) -> None:
    answer = client.get("/docs/%3Cscript%3E")
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "page_not_found"
    assert client.get("/docs/facts/more").status_code == 404
