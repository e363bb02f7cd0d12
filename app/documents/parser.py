"""Parses documents in a child process with limits of memory, CPU time, time and output."""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import msgspec

from app.documents import parser_process
from app.documents.parser_process import ParsedText
from app.jobs.registry import PermanentFailure

PROGRAM = str(Path(parser_process.__file__))
MEMORY = 1024 * 1024 * 1024
CPU_SECONDS = 20
SECONDS = 60.0
CHILDREN = 4


class Unreadable(PermanentFailure):
    """The document cannot be parsed, also not by a retry; the message begins with a stable code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class _Output(msgspec.Struct):
    text: str | None = None
    title: str | None = None
    code: str | None = None
    message: str = ""


class Parser:
    """Parses documents, a limited number at a time."""

    def __init__(
        self,
        *,
        memory: int = MEMORY,
        cpu_seconds: int = CPU_SECONDS,
        seconds: float = SECONDS,
        children: int = CHILDREN,
    ) -> None:
        self._memory = memory
        self._cpu_seconds = cpu_seconds
        self._seconds = seconds
        # Each child may use up to `memory`; further documents wait.
        self._children = asyncio.Semaphore(children)

    async def parse(self, kind: str, raw: bytes, *, charset: str | None, limit: int) -> ParsedText:
        """Return the text and title of a document, or raise Unreadable when it is invalid or exceeds a limit."""
        if kind == "text":
            # Plain text only has to be decoded, which needs no child process.
            try:
                return await asyncio.to_thread(parser_process.parse, kind, raw, charset=charset, limit=limit)
            except parser_process.ParseError as problem:
                raise Unreadable(problem.code, str(problem)) from problem
        options = {
            "kind": kind,
            "charset": charset,
            "limit": limit,
            "memory": self._memory,
            "cpu": self._cpu_seconds,
            "seconds": int(self._seconds) + 1,
        }
        async with self._children:
            output, status = await self._run(msgspec.json.encode(options) + b"\n", raw, max_bytes=6 * limit + 10_000)
        return _decode(output, status)

    async def _run(self, options: bytes, raw: bytes, *, max_bytes: int) -> tuple[bytes, int]:
        """Return the output and exit status of a child, which gets no environment because ours holds secrets."""
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
        feeding = asyncio.create_task(_feed(process, options, raw))
        try:
            async with asyncio.timeout(self._seconds):
                output = await _read_output(process, max_bytes=max_bytes)
                return output, await process.wait()
        except TimeoutError:
            raise Unreadable("document_unreadable", f"Parsing it takes more than {self._seconds:g} seconds.") from None
        finally:
            feeding.cancel()
            with suppress(ProcessLookupError):
                process.kill()
            await asyncio.gather(feeding, return_exceptions=True)
            await asyncio.shield(process.wait())


async def _feed(process: asyncio.subprocess.Process, options: bytes, raw: bytes) -> None:
    assert process.stdin is not None
    # A child that fails early closes its input.
    with suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(options)
        process.stdin.write(raw)
        await process.stdin.drain()
        process.stdin.close()


async def _read_output(process: asyncio.subprocess.Process, *, max_bytes: int) -> bytes:
    assert process.stdout is not None
    output = bytearray()
    while piece := await process.stdout.read(1 << 16):
        output += piece
        if len(output) > max_bytes:
            raise Unreadable("document_too_large", "Its text is longer than a document may have.")
    return bytes(output)


def _decode(output: bytes, status: int) -> ParsedText:
    try:
        decoded = msgspec.json.decode(output, type=_Output)
    except (msgspec.DecodeError, UnicodeDecodeError):
        if status in (-signal.SIGXCPU, -signal.SIGKILL, -signal.SIGALRM):
            raise Unreadable(
                "document_unreadable", "Parsing it exceeds the CPU time or memory limit of a document."
            ) from None
        raise Unreadable("document_unreadable", f"The parser crashed with exit status {status}.") from None
    if decoded.code is not None:
        raise Unreadable(decoded.code, decoded.message)
    if decoded.text is None:
        raise Unreadable("document_unreadable", "The parser returned nothing.")
    return ParsedText(decoded.text, decoded.title)
