"""Parsing behind bars: documents are read in a child process of limited memory, computing time, time and output."""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import msgspec

from app.documents import reading
from app.documents.reading import Extract
from app.jobs.registry import PermanentFailure

PROGRAM = str(Path(reading.__file__))
MEMORY = 1024 * 1024 * 1024
CPU_SECONDS = 20
SECONDS = 60.0
# Each may take as much memory as a child may; the others wait.
AT_ONCE = 4


class Unreadable(PermanentFailure):
    """The document cannot be read, now or later; begins with a stable code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class _Answer(msgspec.Struct):
    text: str | None = None
    title: str | None = None
    code: str | None = None
    message: str = ""


class Parser:
    """Reads documents, a few at a time."""

    def __init__(self, *, memory: int = MEMORY, cpu_seconds: int = CPU_SECONDS, seconds: float = SECONDS) -> None:
        self._memory = memory
        self._cpu_seconds = cpu_seconds
        self._seconds = seconds
        self._room = asyncio.Semaphore(AT_ONCE)

    async def parse(self, kind: str, raw: bytes, *, charset: str | None, limit: int) -> Extract:
        """What a document says; Unreadable when that takes more than is allowed, or nothing can be made of it."""
        if kind == "text":
            # Nothing to parse, only letters to decode.
            try:
                return await asyncio.to_thread(reading.read, kind, raw, charset=charset, limit=limit)
            except reading.Refused as problem:
                raise Unreadable(problem.code, str(problem)) from problem
        order = {
            "kind": kind,
            "charset": charset,
            "limit": limit,
            "memory": self._memory,
            "cpu": self._cpu_seconds,
            "seconds": int(self._seconds) + 1,
        }
        async with self._room:
            output, ended = await self._run(msgspec.json.encode(order) + b"\n", raw, most=6 * limit + 10_000)
        return _understood(output, ended)

    async def _run(self, order: bytes, raw: bytes, *, most: int) -> tuple[bytes, int]:
        """What the child printed, and how it ended. It gets no environment: there are secrets in ours."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            PROGRAM,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={"PATH": os.defpath},
            cwd="/",
        )
        feeding = asyncio.create_task(_feed(process, order, raw))
        try:
            async with asyncio.timeout(self._seconds):
                output = await _drink(process, most=most)
                return output, await process.wait()
        except TimeoutError:
            raise Unreadable("document_unreadable", f"Reading it takes more than {self._seconds:g} seconds.") from None
        finally:
            feeding.cancel()
            with suppress(ProcessLookupError):
                process.kill()
            await asyncio.gather(feeding, return_exceptions=True)
            await asyncio.shield(process.wait())


async def _feed(process: asyncio.subprocess.Process, order: bytes, raw: bytes) -> None:
    assert process.stdin is not None
    # A child that has seen enough hangs up.
    with suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(order)
        process.stdin.write(raw)
        await process.stdin.drain()
        process.stdin.close()


async def _drink(process: asyncio.subprocess.Process, *, most: int) -> bytes:
    assert process.stdout is not None
    output = bytearray()
    while piece := await process.stdout.read(1 << 16):
        output += piece
        if len(output) > most:
            raise Unreadable("document_too_large", "It holds more text than a document may.")
    return bytes(output)


def _understood(output: bytes, ended: int) -> Extract:
    try:
        answer = msgspec.json.decode(output, type=_Answer)
    except (msgspec.DecodeError, UnicodeDecodeError):
        if ended in (-signal.SIGXCPU, -signal.SIGKILL, -signal.SIGALRM):
            raise Unreadable("document_unreadable", "Reading it takes more computing than a document may.") from None
        raise Unreadable("document_unreadable", f"The reader broke down over it ({ended}).") from None
    if answer.code is not None:
        raise Unreadable(answer.code, answer.message)
    if answer.text is None:
        raise Unreadable("document_unreadable", "The reader said nothing.")
    return Extract(answer.text, answer.title)
