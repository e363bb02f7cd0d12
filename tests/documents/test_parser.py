"""Parsing: what each kind of document says, and that none of them can do harm."""

import asyncio
import os
import time
from typing import Any

import pytest

from app.documents import parser_process
from app.documents.parser import Parser, Unreadable
from tests.documents.files import bomb_pdf, make_pdf

LIMIT = 10_000_000
HTML = """<!doctype html><html><head><title> The  &amp; title </title><style>p {}</style></head><body>
<nav>Menu</nav><h1>Head</h1><p>One <b>two</b>three<br>four<script>no()</script> <span hidden>not</span></p>
<p style="display: none">nor this</p><ul><li>first<li>second</ul><table><tr><td>a<td>b</table><noscript>x</noscript>
<pre>keep
this</pre><!-- a comment --><template>t</template></body></html>"""
MARKDOWN = """---
author: someone
---
Words *before* [a link](http://example.com "t").

Setext heading
==============

- item `code`
- ![picture of it](x.png)

```python
print("kept")
```

<div>raw <b>html</b></div>

| a | b |
|---|---|
| 1 | 2 |
"""

pytestmark = pytest.mark.anyio


async def parse(kind: str, raw: bytes, charset: str | None = None, **limits: Any) -> parser_process.ParsedText:
    return await Parser(**limits).parse(kind, raw, charset=charset, limit=LIMIT)


async def refusal(kind: str, raw: bytes, **limits: Any) -> str:
    with pytest.raises(Unreadable) as caught:
        await parse(kind, raw, **limits)
    return caught.value.code


async def test_html_shows_its_visible_text_with_blocks_on_lines() -> None:
    found = await parse("html", HTML.encode())
    assert found.title == "The & title"
    lines = [line for line in found.text.split("\n") if line]
    assert lines == ["Menu", "# Head", "One twothree", "four", "first", "second", "a b", "keep", "this"]


async def test_html_without_a_title_takes_its_heading() -> None:
    assert (await parse("html", b"<h1>Only <i>this</i></h1><p>text")).title == "Only this"


async def test_markdown_loses_its_markup_and_gives_its_first_heading() -> None:
    found = await parse("markdown", MARKDOWN.encode())
    assert found.title == "Setext heading"
    lines = [line for line in found.text.split("\n") if line]
    assert lines == [
        "Words before a link.", "# Setext heading", "- item code", "- picture of it", 'print("kept")', "raw html",
        "a b", "1 2",
    ]  # fmt: skip


async def test_markdown_front_matter_may_name_it() -> None:
    assert (await parse("markdown", b'---\ntitle: "Named"\n---\n# Other\n\ntext')).title == "Named"


async def test_pdf_gives_its_pages_and_its_title() -> None:
    found = await parse("pdf", make_pdf("The first page", "The second page", title="A report"))
    assert found.title == "A report"
    assert found.text == "The first page\n\nThe second page"


@pytest.mark.parametrize(
    ("raw", "charset", "expected"),
    [
        ("naïve 漢字".encode(), None, "naïve 漢字"),
        (b"\xef\xbb\xbf" + "é".encode(), "latin-1", "é"),
        ("é€".encode("utf-16"), None, "é€"),
        ("é€".encode("utf-16-be"), "utf-16-be", "é€"),
        ("пример".encode("koi8-r"), "koi8-r", "пример"),
        ("é".encode(), "iso-8859-1", "é"),
        ("caf\xe9 \u201cquoted\u201d".encode("cp1252"), None, "café “quoted”"),
        (b"one\0two\x07", None, "onetwo"),
        (b"x\xed\xa0\x80y", "no-such-charset", "xí €y"),
        (b"a  b\r\nc\r\n\r\n\r\n\r\nd", None, "a b\nc\n\nd"),
    ],
)
async def test_text_is_decoded_by_mark_declaration_and_guess(raw: bytes, charset: str | None, expected: str) -> None:
    assert (await parse("text", raw, charset)).text == expected


async def test_html_declares_its_charset_in_its_head() -> None:
    page = '<meta charset="koi8-r"><p>пример'
    assert (await parse("html", page.encode("koi8-r"))).text == "пример"


@pytest.mark.parametrize(
    ("kind", "raw", "code"),
    [
        ("pdf", b"not at all", "document_unreadable"),
        ("pdf", b"%PDF-1.7\n" + os.urandom(2000), "document_unreadable"),
        ("pdf", make_pdf("cut short")[:300], "document_unreadable"),
        ("pdf", make_pdf(""), "document_empty"),
        ("html", b"<script>only()</script>", "document_empty"),
        ("text", b" \n ", "document_empty"),
        ("text", b"x" * (LIMIT + 1), "document_too_large"),
    ],
)
async def test_poison_is_refused_with_a_code(kind: str, raw: bytes, code: str) -> None:
    assert await refusal(kind, raw) == code


async def test_pdf_that_unpacks_to_very_much_is_bounded() -> None:
    bomb = bomb_pdf(30_000_000)
    assert len(bomb) < 100_000
    assert await refusal("pdf", bomb, cpu_seconds=2) in ("document_too_large", "document_unreadable")


@pytest.mark.parametrize("tag", [b"<div>", b"<table><td>"])
async def test_html_bomb_of_deep_nesting_is_bounded(tag: bytes) -> None:
    # By its depth, or before that by the computing it takes: which comes first is the machine's affair.
    started = time.monotonic()
    assert await refusal("html", tag * 200_000 + b"deep", cpu_seconds=1) == "document_unreadable"
    assert time.monotonic() - started < 10


async def test_html_nested_too_deep_is_refused_however_fast_it_is_read() -> None:
    with pytest.raises(Unreadable, match="nested more than 10000 deep"):
        await parse("html", b"<table><td>" * 4000 + b"deep")
    assert (await parse("html", b"<table><td>" * 2000 + b"deep" + b"</table>" * 2000 + b"<p>flat" * 20_000)).text


async def test_html_nested_as_deep_as_pages_go_is_read() -> None:
    assert (await parse("html", b"<div>" * 2000 + b"deep")).text == "deep"


async def test_html_of_many_blocks_is_read_in_no_time() -> None:
    found = await parse("html", b"<p>text</p>" * 200_000, cpu_seconds=5)
    assert found.text.count("text") == 200_000


async def test_a_reader_that_takes_too_long_or_too_much_memory_is_stopped() -> None:
    parser = Parser(seconds=0.01)
    with pytest.raises(Unreadable, match="document_unreadable"):
        await parser.parse("pdf", make_pdf("text"), charset=None, limit=LIMIT)
    if os.uname().sysname == "Linux":
        code = await refusal("html", b"<p>text</p>" * 800_000, memory=120 * 1024 * 1024)
        assert code in ("document_too_large", "document_unreadable")


async def test_readers_leave_no_process_behind_when_they_are_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[asyncio.subprocess.Process] = []
    start = asyncio.create_subprocess_exec

    async def watched(*program: Any, **options: Any) -> asyncio.subprocess.Process:
        started.append(await start(*program, **options))
        return started[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", watched)
    task = asyncio.create_task(parse("html", b"<div>" * 400_000, cpu_seconds=20))
    await asyncio.sleep(0.3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (process,) = started
    assert process.returncode is not None
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)
