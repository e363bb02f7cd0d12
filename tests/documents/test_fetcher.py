"""Fetching: only public addresses, the very one that was checked, and never more than is allowed."""

import ipaddress
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager

import httpx
import pytest

from app.documents.fetcher import Fetcher, FetchFailed, FetchRefused, FetchRules, is_public, kind_of
from tests.documents.web import PAGE, Web, serve_web

pytestmark = pytest.mark.anyio
RULES = FetchRules(networks=(ipaddress.ip_network("127.0.0.2/32"),))
LIMIT = 1_000_000


@pytest.fixture(scope="module")
def web() -> Iterator[Web]:
    with serve_web() as server:
        yield server


async def failure(url: str, *, rules: FetchRules = RULES, seconds: float = 5, **more: object) -> str:
    with pytest.raises((FetchRefused, FetchFailed)) as caught:
        await Fetcher(rules, seconds=seconds, **more).fetch(url, limit=LIMIT)  # type: ignore[arg-type]
    return str(caught.value)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.8.8.8", "10.1.2.3", "172.31.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0",
        "0.1.2.3", "192.0.0.1", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.9", "224.0.0.1", "239.1.1.1",
        "240.0.0.1", "255.255.255.255", "192.88.99.1", "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12::1",
        "ff02::1", "fec0::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "2002:7f00:1::", "2002:a00:1::1",
        "64:ff9b::a00:1", "64:ff9b::7f00:1", "64:ff9b:1::1", "2001:db8::1", "2001::1", "100::1", "3fff::1", "4000::1",
    ],
)  # fmt: skip
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"]
)
def test_addresses_that_are_public(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("stated", ["image/png", "application/zip", "application/octet-stream", "video/mp4"])
def test_kinds_that_cannot_be_read(stated: str) -> None:
    with pytest.raises(FetchRefused, match="document_type_unsupported"):
        kind_of(stated, b"\x00\x01")


def test_kinds_by_what_they_say_or_how_they_begin() -> None:
    stated = {
        "text/html; charset=x": "html",
        "TEXT/Markdown": "markdown",
        "text/csv": "text",
        "application/json": "text",
    }
    assert {given: kind_of(given, b"") for given in stated} == stated
    assert kind_of("application/octet-stream", b"%PDF-1.4") == "pdf"
    assert (kind_of("", b" <!DOCTYPE html>"), kind_of("", b"words")) == ("html", "text")


async def test_a_page_is_fetched_and_unpacked(web: Web) -> None:
    fetcher = Fetcher(RULES)
    assert (await fetcher.fetch(f"{web.url}/page", limit=LIMIT)).content == PAGE
    assert (await fetcher.fetch(f"{web.url}/packed", limit=LIMIT)).content == PAGE


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("huge", "document_too_large"),
        ("forever", "document_too_large"),
        ("bomb", "document_too_large"),
        ("inside", "document_redirect_refused"),
        ("userinfo", "document_redirect_refused"),
        ("file", "document_redirect_refused"),
        ("loop", "document_redirect_refused"),
        ("hop-6", "document_redirect_refused"),
        ("image", "document_type_unsupported"),
        ("brotli", "document_type_unsupported"),
        ("missing", "document_fetch_failed"),
        ("broken", "document_fetch_failed"),
    ],
)
async def test_what_is_refused(web: Web, name: str, code: str) -> None:
    started = time.monotonic()
    told = await failure(f"{web.url}/{name}")
    assert told.startswith(f"{code}: ")
    assert "127.0.0" not in told
    assert time.monotonic() - started < 4


async def test_a_slow_answer_is_given_up_as_a_whole(web: Web) -> None:
    started = time.monotonic()
    assert (await failure(f"{web.url}/slowly", seconds=0.5)).startswith("document_fetch_timeout")
    assert time.monotonic() - started < 4


async def test_redirects_carry_no_cookies(web: Web) -> None:
    await Fetcher(RULES).fetch(f"{web.url}/hop-5?cookies", limit=LIMIT)
    assert not any("cookie" in headers for _, headers in web.asked)


async def test_names_that_resolve_to_private_addresses(web: Web) -> None:
    assert await failure(f"http://localhost:{web.server_port}/page") == (
        "document_fetch_refused: It resolves to a private address."
    )

    async def mixed(host: str, port: int) -> list[str]:
        return ["127.0.0.2", "10.0.0.1"]

    assert "private address" in await failure(f"http://example.com:{web.server_port}/page", resolver=mixed)


async def test_a_name_is_asked_for_once_and_its_address_is_the_one_that_is_asked(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    asked: list[str] = []

    async def rebinding(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.2"] if len(asked) == 1 else ["127.0.0.1"]

    fetcher = Fetcher(RULES, resolver=rebinding)
    page = await fetcher.fetch(f"http://rebind.example:{web.server_port}/page?rebound", limit=LIMIT)
    assert page.content == PAGE
    assert asked == ["rebind.example"]
    ((_, headers),) = [entry for entry in web.asked if entry[0] == "/page?rebound"]
    assert headers["host"] == f"rebind.example:{web.server_port}"


async def test_an_address_that_does_not_answer_is_followed_by_the_next(web: Web) -> None:
    async def several(host: str, port: int) -> list[str]:
        return ["127.0.0.3", "127.0.0.2"]

    rules = FetchRules(networks=(ipaddress.ip_network("127.0.0.2/31"),))
    fetcher = Fetcher(rules, resolver=several)
    assert (await fetcher.fetch(f"http://example.com:{web.server_port}/page", limit=LIMIT)).content == PAGE


async def test_unknown_names_and_switched_off() -> None:
    async def unknown(host: str, port: int) -> list[str]:
        raise OSError

    assert (await failure("http://example.com/", resolver=unknown)).startswith("document_fetch_failed")
    assert (await failure("http://example.com/", rules=FetchRules(enabled=False))).startswith("document_fetch_off")


class Secure(Fetcher):
    """Responds to every request with a redirect."""

    @asynccontextmanager
    async def _request(self, url: httpx.URL) -> AsyncGenerator[httpx.Response]:
        yield httpx.Response(302, headers={"location": "http://example.com/"})


async def test_https_is_not_left_for_http(web: Web) -> None:
    with pytest.raises(FetchRefused, match="document_redirect_refused: It leads from https to http"):
        await Secure(RULES).fetch("https://example.com/", limit=LIMIT)
    with pytest.raises(FetchFailed, match="document_fetch_failed"):
        # Nobody speaks TLS there: what is not encrypted is not taken for what is.
        await Fetcher(RULES).fetch(f"https://127.0.0.2:{web.server_port}/page", limit=LIMIT)
