"""Fetches web pages; every resolved address is checked and then connected to, so that DNS cannot change in between.

FetchFailed     can be retried: no response, a timeout, or an error of the server
FetchRefused    cannot be retried: an address that is not public, a bad redirect, too large, or an unsupported type
"""

import asyncio
import ipaddress
import re
import socket
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx
import msgspec

from app import __version__
from app.config import Settings
from app.jobs.registry import PermanentFailure

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolve = Callable[[str, int], Awaitable[list[str]]]

MAX_URL = 2048
MAX_REDIRECTS = 5
MAX_ADDRESSES = 4
SECONDS = 30.0
REDIRECTS = frozenset({301, 302, 303, 307, 308})
RETRYABLE_STATUSES = frozenset({408, 425, 429})
HEADERS = {
    "user-agent": f"palimpsest/{__version__}",
    "accept": "text/html, application/xhtml+xml, text/markdown, text/plain, application/pdf, application/json;q=0.5",
    # Only what is decompressed here, where its size is limited.
    "accept-encoding": "gzip",
}
KINDS = {
    "text/html": "html",
    "application/xhtml+xml": "html",
    "text/markdown": "markdown",
    "text/x-markdown": "markdown",
    "application/pdf": "pdf",
    "application/x-pdf": "pdf",
    "application/json": "text",
}
CHARSET = re.compile(r"charset\s*=\s*\"?([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)

# Listed here because `is_global` differs between Python versions.
_NOT_PUBLIC = [
    ipaddress.ip_network(network)
    for network in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
        "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24",
        "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3",
        "2001::/23", "2001:db8::/32", "2620:4f:8000::/48", "3fff::/20",
    )
]  # fmt: skip
_UNICAST = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class FetchFailed(Exception):
    """A failure that may not happen again; the message begins with a stable code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")


class FetchRefused(PermanentFailure):
    """A failure that a retry cannot help; the message begins with a stable code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A fetched page."""

    content: bytes
    content_type: str


def is_public(address: Address) -> bool:
    """Return whether an address is public and unicast; an IPv6 address that embeds an IPv4 one is judged by that."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
        if address.scope_id is not None or address not in _UNICAST:
            return False
    return not any(address in network for network in _NOT_PUBLIC if network.version == address.version)


class FetchRules(msgspec.Struct, frozen=True, kw_only=True):
    """Whether pages may be fetched, and from which networks that are not public."""

    enabled: bool = True
    networks: tuple[Network, ...] = ()

    @classmethod
    def from_settings(cls, settings: Settings) -> "FetchRules":
        """Return the rules of the installation."""
        networks = tuple(ipaddress.ip_network(network) for network in sorted(settings.document_fetch_networks))
        return cls(enabled=settings.document_fetch, networks=networks)

    def allow(self, address: Address) -> bool:
        """Return whether this address may be connected to."""
        return is_public(address) or any(
            address in network for network in self.networks if network.version == address.version
        )

    def checked(self, address: str) -> httpx.URL:
        """Return the address as a URL, or raise FetchRefused when it is invalid without resolving its name."""
        if not self.enabled:
            raise FetchRefused(
                "document_fetch_off", "Fetching pages is turned off in this installation (DOCUMENT_FETCH)."
            )
        try:
            url = httpx.URL(address) if len(address) <= MAX_URL else None
        except (httpx.InvalidURL, UnicodeError):
            url = None
        if url is None or not url.host:
            raise FetchRefused("document_url_invalid", f"Not a valid URL of at most {MAX_URL} characters.")
        if url.scheme not in ("http", "https"):
            raise FetchRefused("document_url_invalid", "Only http and https URLs can be fetched.")
        if url.userinfo:
            raise FetchRefused("document_url_invalid", "A URL with a user name or password cannot be fetched.")
        literal = _literal(url.host)
        if literal is not None and not self.allow(literal):
            raise _private()
        return url.copy_with(fragment=None)


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        pass
    try:
        # Forms such as 127.1 or 0x7f000001, which resolvers accept as addresses.
        return ipaddress.IPv4Address(socket.inet_aton(host)) if re.fullmatch(r"[0-9a-fA-FxX.]+", host) else None
    except OSError:
        return None


def _private() -> FetchRefused:
    return FetchRefused("document_fetch_refused", "It resolves to a private address.")


async def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a host name."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class Fetcher:
    """Fetches pages within the rules and limits, without proxies, cookies or credentials."""

    def __init__(self, rules: FetchRules, *, seconds: float = SECONDS, resolver: Resolve = resolve) -> None:
        self._rules = rules
        self._seconds = seconds
        self._resolve = resolver

    async def fetch(self, address: str, *, limit: int) -> Page:
        """Return the page at an address after redirects, of at most `limit` decompressed bytes."""
        try:
            async with asyncio.timeout(self._seconds):
                return await self._follow(self._rules.checked(address), limit)
        except TimeoutError:
            raise FetchFailed("document_fetch_timeout", f"No response within {self._seconds:g} seconds.") from None
        except httpx.TransportError as problem:
            raise FetchFailed(
                "document_fetch_failed", f"The connection to the server failed ({type(problem).__name__})."
            ) from problem

    async def _follow(self, url: httpx.URL, limit: int) -> Page:
        for _ in range(MAX_REDIRECTS + 1):
            async with self._request(url) as response:
                if response.status_code not in REDIRECTS:
                    return await _read(response, limit)
                target = response.headers.get("location", "")
            try:
                following = self._rules.checked(str(url.join(target)))
            except (httpx.InvalidURL, UnicodeError):
                raise FetchRefused("document_redirect_refused", "It leads to an invalid URL.") from None
            except FetchRefused as problem:
                raise FetchRefused("document_redirect_refused", problem.message) from problem
            if url.scheme == "https" and following.scheme == "http":
                raise FetchRefused("document_redirect_refused", "It leads from https to http.")
            url = following
        raise FetchRefused("document_redirect_refused", f"More than {MAX_REDIRECTS} redirects.")

    @asynccontextmanager
    async def _request(self, url: httpx.URL) -> AsyncGenerator[httpx.Response]:
        """Yield the response of the first address that accepts the connection."""
        addresses = await self._addresses(url)
        last = addresses[-1]
        for address in addresses:
            async with httpx.AsyncHTTPTransport(http1=True, http2=False, retries=0) as transport:
                try:
                    response = await transport.handle_async_request(self._build_request(url, address))
                except (httpx.ConnectError, httpx.ConnectTimeout):
                    if address is last:
                        raise
                    continue
                try:
                    yield response
                finally:
                    await response.aclose()
                return

    async def _addresses(self, url: httpx.URL) -> list[Address]:
        host = url.raw_host.decode("ascii")
        port = url.port or (443 if url.scheme == "https" else 80)
        try:
            found = await self._resolve(host.strip("[]"), port)
        except (OSError, UnicodeError):
            raise FetchFailed("document_fetch_failed", "Its host name cannot be resolved.") from None
        addresses = [ipaddress.ip_address(address) for address in found]
        # One private address is enough to refuse: a name that also has public ones may be an attack.
        if not addresses or not all(self._rules.allow(address) for address in addresses):
            raise _private()
        return addresses[:MAX_ADDRESSES]

    def _build_request(self, url: httpx.URL, address: Address) -> httpx.Request:
        """Return a request to the checked address with the host's name, so that it is not resolved again."""
        name = url.raw_host.decode("ascii")
        host = url.netloc.decode("ascii")
        timeouts = dict.fromkeys(("connect", "read", "write", "pool"), self._seconds)
        return httpx.Request(
            "GET",
            url.copy_with(host=str(address)),
            headers={"host": host, **HEADERS},
            extensions={"sni_hostname": name, "timeout": timeouts},
        )


async def _read(response: httpx.Response, limit: int) -> Page:
    if response.status_code != 200:
        message = f"The server responded with status {response.status_code}."
        if response.status_code >= 500 or response.status_code in RETRYABLE_STATUSES:
            raise FetchFailed("document_fetch_failed", message)
        raise FetchRefused("document_fetch_failed", message)
    announced = response.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limit:
        raise _too_large(limit)
    content_type = response.headers.get("content-type", "")[:200]
    content = bytearray()
    async for piece in _decompressed(response, limit):
        content += piece
        if len(content) > limit:
            raise _too_large(limit)
    page = Page(content=bytes(content), content_type=content_type)
    kind_of(page.content_type, page.content)
    return page


async def _decompressed(response: httpx.Response, limit: int) -> AsyncIterator[bytes]:
    """Yield the content, decompressed in bounded pieces: a few bytes may expand to very many."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("identity", ""):
        async for piece in response.aiter_raw():
            yield piece
        return
    if encoding not in ("gzip", "x-gzip"):
        raise FetchRefused("document_type_unsupported", "Its content encoding is not supported.")
    decompressor = zlib.decompressobj(wbits=31)
    async for piece in response.aiter_raw():
        while piece:
            try:
                yield decompressor.decompress(piece, limit + 1)
            except zlib.error:
                raise FetchRefused("document_unreadable", "It cannot be decompressed.") from None
            piece = decompressor.unconsumed_tail  # noqa: PLW2901 - the rest beyond the limit of one call


def kind_of(content_type: str, content: bytes) -> str:
    """Return how to parse a page: by its content type, or by its first bytes when that is missing."""
    stated = content_type.partition(";")[0].strip().lower()
    if stated in ("", "application/octet-stream", "binary/octet-stream"):
        start = content[:1024].lstrip().lower()
        if start.startswith(b"%pdf-"):
            return "pdf"
        if not stated:
            return "html" if start.startswith((b"<!doctype html", b"<html")) else "text"
    kind = KINDS.get(stated) or ("text" if stated.startswith("text/") else None)
    if kind is None:
        raise FetchRefused("document_type_unsupported", f"Pages of type {stated[:100]} are not supported.")
    return kind


def charset_of(content_type: str | None) -> str | None:
    """Return the charset that a content type declares, or None."""
    found = CHARSET.search(content_type or "")
    return found[1] if found else None


def _too_large(limit: int) -> FetchRefused:
    return FetchRefused("document_too_large", f"It has more than {limit} bytes (document_max_content_bytes).")
