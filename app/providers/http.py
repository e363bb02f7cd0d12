"""POST of JSON to a provider, with one budget of time, bounded answers, retries and the provider tree of errors."""

import asyncio
import random
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

import httpx
import msgspec

from app.providers.base import AnswerUnusable, InputRefused, ProviderDown, ProviderError, ProviderMisconfigured

CONNECT_SECONDS = 5.0
MAX_ANSWER_BYTES = 32 * 1024 * 1024
MAX_PROBLEM_BYTES = 16 * 1024
QUOTED_CHARACTERS = 200
# A provider that asks for more patience than this is left to the caller's own back-off.
MAX_WAIT_SECONDS = 5.0
REFUSED_INPUT = frozenset({400, 413, 422})
COME_BACK_LATER = frozenset({408, 425, 429})
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})

T = TypeVar("T")
_random = random.SystemRandom()


class JsonClient:
    """One provider at one address; `timeout_seconds` bounds a whole call, its retries included."""

    def __init__(
        self,
        name: str,
        base_url: str,
        *,
        api_key: str | None = None,
        timeout_seconds: float = 30.0,
        retries: int = 2,
        backoff_seconds: float = 0.2,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        quoting: bool = False,
    ) -> None:
        self.name = name
        self.base_url = base_url.rstrip("/")
        self._timeout = timeout_seconds
        self._retries = retries
        self._backoff = backoff_seconds
        self._max_bytes = max_answer_bytes
        self._quoting = quoting
        headers = {"content-type": "application/json", "accept": "application/json"}
        if api_key is not None:
            headers["authorization"] = f"Bearer {_checked_key(name, api_key)}"
        self._http = httpx.AsyncClient(
            headers=headers,
            timeout=httpx.Timeout(timeout_seconds, connect=min(CONNECT_SECONDS, timeout_seconds)),
            # A proxy of the environment leads out; what runs on this machine is not out there.
            trust_env=_host(name, self.base_url) not in LOOPBACK,
        )

    async def answers(self, path: str, *, seconds: float) -> bool:
        """Whether anybody is there: a GET that is answered with 200 in time."""
        try:
            async with asyncio.timeout(seconds), self._http.stream("GET", self.base_url + path) as response:
                return response.status_code == 200
        except (TimeoutError, httpx.HTTPError):
            return False

    async def post(
        self,
        path: str,
        body: object,
        answer: type[T],
        *,
        timeout_seconds: float | None = None,
        waited_for: bool = False,
    ) -> T:
        """The provider's answer, decoded; what passes is tried again while the time lasts, but where somebody waits for
        it not a connection that is refused."""
        content = msgspec.json.encode(body)
        patience = self._timeout if timeout_seconds is None else timeout_seconds
        problem: ProviderDown | None = None
        try:
            async with asyncio.timeout(patience):
                for attempt in range(self._retries + 1):
                    if problem is not None:
                        await asyncio.sleep(self._wait(attempt, problem))
                    try:
                        return self._decode(await self._send(path, content, patience), answer)
                    except ProviderDown as down:
                        problem = down
                        if (down.retry_after or 0) > MAX_WAIT_SECONDS or (waited_for and down.unreachable):
                            break
        except TimeoutError as late:
            if problem is None:
                raise ProviderDown(f"{self.name} did not answer within {patience:g} s.") from late
        assert problem is not None
        raise problem

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    def _wait(self, attempt: int, problem: ProviderDown) -> float:
        # Spread, so that those who failed together do not come back together.
        pause = self._backoff * 2 ** (attempt - 1) * _random.uniform(0.8, 1.2)
        return max(pause, problem.retry_after or 0)

    async def _send(self, path: str, content: bytes, patience: float) -> bytes:
        timeout = httpx.Timeout(patience, connect=min(CONNECT_SECONDS, patience))
        try:
            async with self._http.stream("POST", self.base_url + path, content=content, timeout=timeout) as response:
                if response.status_code == 200:
                    return await self._read(response)
                raise await self._refusal(response)
        except httpx.TimeoutException as problem:
            raise ProviderDown(f"{self.name} did not answer in time.") from problem
        except httpx.TransportError as problem:
            unreachable = isinstance(problem, httpx.ConnectError)
            reason = f"{self.name} cannot be reached ({type(problem).__name__})."
            raise ProviderDown(reason, unreachable=unreachable) from problem
        except httpx.RequestError as problem:
            raise AnswerUnusable(f"{self.name} answered what cannot be read ({type(problem).__name__}).") from problem

    async def _read(self, response: httpx.Response) -> bytes:
        # Counted after decompression: a small answer may unpack into a large one.
        parts = bytearray()
        async for part in response.aiter_bytes():
            parts += part
            if len(parts) > self._max_bytes:
                raise AnswerUnusable(f"{self.name} answered more than {self._max_bytes} bytes.")
        return bytes(parts)

    async def _refusal(self, response: httpx.Response) -> ProviderError:
        status = response.status_code
        problem = f"{self.name} answered {status}"
        content = await _problem(response)
        details = {"provider": self.name, "status": status, **_reason(content)}
        if self._quoting and status not in {401, 403}:
            details["answer"] = content.decode(errors="replace")[:QUOTED_CHARACTERS]
        if status >= 500 or status in COME_BACK_LATER:
            return ProviderDown(f"{problem}.", retry_after=_retry_after(response), details=details)
        if status in REFUSED_INPUT:
            return InputRefused(f"{problem}: it does not take this input.", details=details)
        if status in {401, 403}:
            return ProviderMisconfigured(f"{problem}: check its API key.", details=details)
        return ProviderMisconfigured(f"{problem}: check its address and the model's name.", details=details)

    def _decode(self, content: bytes, answer: type[T]) -> T:
        try:
            return msgspec.json.decode(content, type=answer)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
            # Without the reason: it may quote the answer.
            raise AnswerUnusable(f"{self.name} answered JSON of an unexpected shape, or none.") from problem


async def _problem(response: httpx.Response) -> bytes:
    """What came with a refusal, as far as it is read."""
    content = bytearray()
    async for part in response.aiter_bytes():
        content += part
        if len(content) > MAX_PROBLEM_BYTES:
            break
    return bytes(content[:MAX_PROBLEM_BYTES])


def _reason(content: bytes) -> dict[str, str]:
    """The provider's own code for a refusal, when it looks like one: its prose may quote texts and keys."""
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
        # No date, or one so far away that it is none.
        return None


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
        raise ProviderMisconfigured(f"The API key of {name} holds characters that no key has.")
    return stripped
