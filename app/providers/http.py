"""JSON over HTTP to a provider, with one timeout per call, bounded responses, retries and provider errors."""

import asyncio
import random
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

import httpx
import msgspec

from app.providers.base import InputRefused, ProviderDown, ProviderError, ProviderMisconfigured, UnusableResponse

CONNECT_SECONDS = 5.0
MAX_RESPONSE_BYTES = 32 * 1024 * 1024
MAX_ERROR_BYTES = 16 * 1024
QUOTED_CHARACTERS = 200
# A longer Retry-After is left to the caller's own backoff.
MAX_WAIT_SECONDS = 5.0
REJECTED_INPUT = frozenset({400, 413, 422})
RETRYABLE_STATUSES = frozenset({408, 425, 429})
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})

T = TypeVar("T")
_random = random.SystemRandom()


class JsonClient:
    """A client of one provider; `timeout_seconds` bounds a whole call, retries included."""

    def __init__(
        self,
        name: str,
        base_url: str,
        *,
        api_key: str | None = None,
        timeout_seconds: float = 30.0,
        retries: int = 2,
        backoff_seconds: float = 0.2,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
        quote_errors: bool = False,
    ) -> None:
        self.name = name
        self.base_url = base_url.rstrip("/")
        self._address = _address(self.base_url)
        self._timeout = timeout_seconds
        self._retries = retries
        self._backoff = backoff_seconds
        self._max_bytes = max_response_bytes
        self._quote_errors = quote_errors
        headers = {"content-type": "application/json", "accept": "application/json"}
        if api_key is not None:
            headers["authorization"] = f"Bearer {_checked_key(name, api_key)}"
        self._http = httpx.AsyncClient(
            headers=headers,
            timeout=httpx.Timeout(timeout_seconds, connect=min(CONNECT_SECONDS, timeout_seconds)),
            # A proxy of the environment cannot reach servers on this machine.
            trust_env=_host(name, self.base_url) not in LOOPBACK,
        )

    async def is_available(self, path: str, *, seconds: float) -> bool:
        """Return whether a GET is answered with 200 in time."""
        try:
            async with asyncio.timeout(seconds), self._http.stream("GET", self.base_url + path) as response:
                return response.status_code == 200
        except (TimeoutError, httpx.HTTPError):
            return False

    async def post(
        self,
        path: str,
        body: object,
        response_type: type[T],
        *,
        timeout_seconds: float | None = None,
        interactive: bool = False,
    ) -> T:
        """Return the decoded response or raise a ProviderError; retry temporary errors within the timeout.

        `interactive` calls, for which a request waits, do not retry a refused connection.
        """
        content = msgspec.json.encode(body)
        timeout = self._timeout if timeout_seconds is None else timeout_seconds
        problem: ProviderDown | None = None
        try:
            async with asyncio.timeout(timeout):
                for attempt in range(self._retries + 1):
                    if problem is not None:
                        await asyncio.sleep(self._wait(attempt, problem))
                    try:
                        return self._decode(await self._send(path, content, timeout), response_type)
                    except ProviderDown as down:
                        problem = down
                        if (down.retry_after or 0) > MAX_WAIT_SECONDS or (interactive and down.unreachable):
                            break
        except TimeoutError as late:
            if problem is None:
                raise ProviderDown(f"{self.name} did not answer within {timeout:g} s.") from late
        assert problem is not None
        raise problem

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    def _wait(self, attempt: int, problem: ProviderDown) -> float:
        # Jitter, so that calls that failed together are not retried together.
        pause = self._backoff * 2 ** (attempt - 1) * _random.uniform(0.8, 1.2)
        return max(pause, problem.retry_after or 0)

    async def _send(self, path: str, content: bytes, seconds: float) -> bytes:
        timeout = httpx.Timeout(seconds, connect=min(CONNECT_SECONDS, seconds))
        try:
            async with self._http.stream("POST", self.base_url + path, content=content, timeout=timeout) as response:
                if response.status_code == 200:
                    return await self._read(response)
                raise await self._refusal(response)
        except (httpx.ConnectError, httpx.ConnectTimeout) as problem:
            reason = f"{self.name} at {self._address} cannot be reached ({type(problem).__name__})."
            raise ProviderDown(reason, unreachable=True) from problem
        except httpx.TimeoutException as problem:
            raise ProviderDown(f"{self.name} did not answer in time.") from problem
        except httpx.TransportError as problem:
            raise ProviderDown(f"{self.name} at {self._address} hung up ({type(problem).__name__}).") from problem
        except httpx.RequestError as problem:
            raise UnusableResponse(f"{self.name} sent an unreadable response ({type(problem).__name__}).") from problem

    async def _read(self, response: httpx.Response) -> bytes:
        # Counted after decompression, which may expand a small response.
        parts = bytearray()
        async for part in response.aiter_bytes():
            parts += part
            if len(parts) > self._max_bytes:
                raise UnusableResponse(f"{self.name} sent more than {self._max_bytes} bytes.")
        return bytes(parts)

    async def _refusal(self, response: httpx.Response) -> ProviderError:
        status = response.status_code
        problem = f"{self.name} answered {status}"
        content = await _error_body(response)
        details = {"provider": self.name, "status": status, **_error_code(content)}
        if self._quote_errors and status not in {401, 403}:
            details["answer"] = content.decode(errors="replace")[:QUOTED_CHARACTERS]
        if status >= 500 or status in RETRYABLE_STATUSES:
            return ProviderDown(f"{problem}.", retry_after=_retry_after(response), details=details)
        if status in REJECTED_INPUT:
            return InputRefused(f"{problem}: it rejects this input.", details=details)
        if status in {401, 403}:
            return ProviderMisconfigured(f"{problem}: check its API key.", details=details)
        return ProviderMisconfigured(f"{problem}: check its address and the model's name.", details=details)

    def _decode(self, content: bytes, response_type: type[T]) -> T:
        try:
            return msgspec.json.decode(content, type=response_type)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
            # Without the reason, which may quote the response.
            raise UnusableResponse(f"{self.name} sent JSON of an unexpected shape, or none.") from problem


async def _error_body(response: httpx.Response) -> bytes:
    """Return the beginning of the body of an error response."""
    content = bytearray()
    async for part in response.aiter_bytes():
        content += part
        if len(content) > MAX_ERROR_BYTES:
            break
    return bytes(content[:MAX_ERROR_BYTES])


def _error_code(content: bytes) -> dict[str, str]:
    """Return the provider's error code, if any, but not its message, which may quote texts and keys."""
    found = re.search(rb'"code"\s*:\s*"([a-z][a-z0-9_]{0,63})"', content)
    return {"provider_code": found[1].decode()} if found else {}


def _retry_after(response: httpx.Response) -> float | None:
    raw = response.headers.get("retry-after", "").strip()
    if re.fullmatch(r"\d{1,9}(\.\d+)?", raw):
        return float(raw)
    try:
        moment = parsedate_to_datetime(raw)
        return max(0.0, (moment.replace(tzinfo=moment.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError, OverflowError):
        # Not a date, or one out of range.
        return None


def _address(base_url: str) -> str:
    """Return a URL without credentials, query and fragment, to be shown; empty when it is none."""
    try:
        url = httpx.URL(base_url)
    except httpx.InvalidURL:
        return ""
    return f"{url.scheme}://{url.netloc.decode()}{url.path}".rstrip("/")


def _host(name: str, base_url: str) -> str:
    try:
        url = httpx.URL(base_url)
    except httpx.InvalidURL as problem:
        raise ProviderMisconfigured(f"The address of {name} is not a URL.") from problem
    if url.scheme not in {"http", "https"} or not url.host:
        raise ProviderMisconfigured(f"The address of {name} must look like http://host:port.")
    return url.host


def _checked_key(name: str, key: str) -> str:
    stripped = key.strip()
    if not stripped or not stripped.isascii() or not stripped.isprintable() or " " in stripped:
        raise ProviderMisconfigured(f"The API key of {name} contains characters that are not allowed in a key.")
    return stripped
