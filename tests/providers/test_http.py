"""What can go wrong between us and a provider ends as the right kind of error, soon, and without secrets in it."""

import gzip
import socket
import time
from typing import Any

import msgspec
import pytest

from app.providers.base import InputRefused, ProviderDown, ProviderError, ProviderMisconfigured, UnusableResponse
from app.providers.http import JsonClient
from tests.providers.loopback import Answer, in_turn, listening

pytestmark = pytest.mark.anyio
KEY = "sk-secret-0123456789"
TEXT = "what the user wrote"


class Good(msgspec.Struct):
    ok: bool


GOOD = Answer({"ok": True})


async def ask(url: str, **options: Any) -> Good:
    client = JsonClient("acme", url, **{"api_key": KEY, "backoff_seconds": 0.01, **options})
    try:
        return await client.post("/ask", {"text": TEXT}, Good)
    finally:
        await client.aclose()


async def test_the_key_and_the_body_arrive() -> None:
    async with listening(in_turn(GOOD)) as server:
        assert (await ask(server.url + "/v1/")).ok
    assert server.asked[0].path == "/v1/ask"
    assert server.asked[0].headers["authorization"] == f"Bearer {KEY}"
    assert server.asked[0].body == {"text": TEXT}


@pytest.mark.parametrize(
    ("status", "kind", "requests"),
    [
        (400, InputRefused, 1),
        (413, InputRefused, 1),
        (422, InputRefused, 1),
        (401, ProviderMisconfigured, 1),
        (403, ProviderMisconfigured, 1),
        (404, ProviderMisconfigured, 1),
        (302, ProviderMisconfigured, 1),
        (429, ProviderDown, 3),
        (500, ProviderDown, 3),
        (503, ProviderDown, 3),
    ],
)
async def test_each_status_is_its_kind_of_error(status: int, kind: type[ProviderError], requests: int) -> None:
    quoting = {"error": {"code": "some_reason", "message": f"bad key {KEY} for {TEXT}"}}
    async with listening(in_turn(Answer(quoting, status=status))) as server:
        with pytest.raises(kind) as caught:
            await ask(server.url)
    assert type(caught.value) is kind
    assert len(server.asked) == requests
    assert caught.value.details == {"provider": "acme", "status": status, "provider_code": "some_reason"}
    assert KEY not in repr(caught.value)
    assert TEXT not in repr(caught.value)


@pytest.mark.parametrize("status", [429, 500, 502])
async def test_temporary_errors_are_retried(status: int) -> None:
    async with listening(in_turn(Answer(status=status), Answer(status=status), GOOD)) as server:
        assert (await ask(server.url)).ok
    assert len(server.asked) == 3


async def test_a_short_retry_after_is_waited_for() -> None:
    async with listening(in_turn(Answer(status=429, headers={"retry-after": "0.4"}), GOOD)) as server:
        started = time.monotonic()
        assert (await ask(server.url)).ok
    assert time.monotonic() - started >= 0.4


@pytest.mark.parametrize("retry_after", ["120", "Fri, 31 Dec 2999 23:59:59 GMT"])
async def test_a_long_retry_after_is_left_to_the_caller(retry_after: str) -> None:
    async with listening(in_turn(Answer(status=429, headers={"retry-after": retry_after}))) as server:
        with pytest.raises(ProviderDown) as caught:
            await ask(server.url)
    assert len(server.asked) == 1
    assert caught.value.retry_after is not None
    assert caught.value.retry_after >= 120
    assert int(caught.value.headers["retry-after"]) >= 120


@pytest.mark.parametrize("retry_after", ["soon", "-1", "", "Fri, 99 Foo", "Mon, 01 Jan 2020 00:00:00 +99999999999999"])
async def test_a_retry_after_that_says_nothing_is_ignored(retry_after: str) -> None:
    async with listening(in_turn(Answer(status=429, headers={"retry-after": retry_after}))) as server:
        with pytest.raises(ProviderDown) as caught:
            await ask(server.url)
    assert caught.value.retry_after is None
    assert len(server.asked) == 3


async def test_the_time_limit_holds_for_the_whole_call() -> None:
    async with listening(in_turn(Answer(status=500, delay=0.2))) as server:
        started = time.monotonic()
        with pytest.raises(ProviderDown, match="500"):
            await ask(server.url, timeout_seconds=0.3, retries=50)
    assert time.monotonic() - started < 3


async def test_a_silent_provider_is_down() -> None:
    async with listening(in_turn(Answer(delay=5))) as server:
        started = time.monotonic()
        with pytest.raises(ProviderDown, match="did not answer"):
            await ask(server.url, timeout_seconds=0.2)
    assert time.monotonic() - started < 3


async def test_an_answer_that_drips_is_cut_off() -> None:
    async with listening(in_turn(Answer(raw=b" ", repeat=1000, pause=0.01))) as server:
        with pytest.raises(ProviderDown, match="did not answer"):
            await ask(server.url, timeout_seconds=0.3)


async def test_a_refused_connection_is_down() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(ProviderDown, match="cannot be reached"):
            await ask(f"http://127.0.0.1:{taken.getsockname()[1]}")


async def test_a_connection_that_breaks_off_is_down() -> None:
    headers = {"content-length": "1000"}
    async with listening(in_turn(Answer({"ok": True}, headers=headers))) as server:
        with pytest.raises(ProviderDown):
            await ask(server.url)


async def test_a_huge_answer_is_not_read_to_its_end() -> None:
    async with listening(in_turn(Answer(raw=b"x" * 100_000, repeat=10_000))) as server:
        with pytest.raises(UnusableResponse, match="more than 1000000 bytes"):
            await ask(server.url, max_response_bytes=1_000_000)
    assert len(server.asked) == 1


async def test_a_small_answer_that_unpacks_into_a_huge_one_is_not_read_either() -> None:
    packed = gzip.compress(b" " * 5_000_000)
    async with listening(in_turn(Answer(raw=packed, headers={"content-encoding": "gzip"}))) as server:
        with pytest.raises(UnusableResponse, match="more than"):
            await ask(server.url, max_response_bytes=1_000_000)


@pytest.mark.parametrize(
    "answer",
    [
        Answer(raw=b"<html>login</html>"),
        Answer(raw=b""),
        Answer(raw=b'{"ok": tr'),
        Answer(raw=b'{"ok": "\xff"}'),
        Answer({"error": "model is loading"}),
        Answer([]),
        Answer(raw=b'{"x":' + b"[" * 5000 + b"]" * 5000 + b"}"),
        Answer(raw=b'{"ok":' + b'{"ok":' * 100_000),
        Answer(raw=b"not gzip", headers={"content-encoding": "gzip"}),
    ],
)
async def test_an_answer_that_is_not_what_was_asked_for_is_unusable(answer: Answer) -> None:
    async with listening(in_turn(answer)) as server:
        with pytest.raises(UnusableResponse) as caught:
            await ask(server.url)
    assert len(server.asked) == 1
    assert caught.value.status == 502


@pytest.mark.parametrize(
    "url", ["", "localhost:11434", "ftp://host", "http://", "http://host:port", "file:///etc/passwd"]
)
async def test_an_invalid_address_is_refused_at_once(url: str) -> None:
    with pytest.raises(ProviderMisconfigured, match="address of acme"):
        JsonClient("acme", url)


@pytest.mark.parametrize("key", ["two words", "línea", "a\nb", " "])
async def test_an_invalid_key_is_refused_at_once_and_not_shown(key: str) -> None:
    with pytest.raises(ProviderMisconfigured) as caught:
        JsonClient("acme", "http://127.0.0.1:1", api_key=key)
    assert key.strip() == "" or key not in str(caught.value)


async def test_a_refused_connection_is_retried_unless_the_call_is_interactive() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        client = JsonClient("acme", url, backoff_seconds=0.2)
        took: dict[bool, list[float]] = {True: [], False: []}
        for interactive in (True, True, True, False):
            started = time.monotonic()
            with pytest.raises(ProviderDown, match="ConnectError") as caught:
                await client.post("/ask", {"text": TEXT}, Good, interactive=interactive)
            assert caught.value.unreachable
            took[interactive].append(time.monotonic() - started)
        # The quickest of three: a pause of this machine is no second try.
        assert min(took[True]) < 0.3
        assert min(took[False]) >= 0.4
        await client.aclose()


async def test_temporary_errors_of_interactive_calls_are_retried() -> None:
    async with listening(in_turn(Answer(status=503), GOOD)) as server:
        client = JsonClient("acme", server.url, backoff_seconds=0.01)
        assert (await client.post("/ask", {"text": TEXT}, Good, interactive=True)).ok
        await client.aclose()
