"""Starts the real service in processes of its own, for tests and benchmarks."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

if TYPE_CHECKING:
    from tests.commands import ForkedProcess

ROOT = Path(__file__).resolve().parent.parent


@dataclass
class RunningService:
    """A service that answers at `url`; what it says goes to `log`."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path
    said_before: int = 0
    """How much of the log was there when this module got the service."""

    def output(self) -> str:
        """All it has printed so far."""
        return self.log.read_text(errors="replace")[self.said_before :]


def free_port() -> int:
    """A port nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def clean_environment(**variables: str) -> dict[str, str]:
    """The environment without the caller's own settings."""
    from app.config import ENVIRONMENT_VARIABLES

    kept = {name: value for name, value in os.environ.items() if name not in ENVIRONMENT_VARIABLES}
    # Hundreds of processes are started: compiled modules are kept for the next one.
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return {**kept, **variables}


def palimpsest(*arguments: str, timeout: Any = 180, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    # Imported here: benchmarks and services need nothing of it.
    from tests.commands import run_command

    return run_command(arguments, environment=clean_environment(**variables), timeout=timeout)


def spawn(*arguments: str, log: Path, **variables: str) -> subprocess.Popen[bytes]:
    """Starts the command and leaves it running, in a process group of its own."""
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "app.cli", *arguments],
            cwd=ROOT,
            env=clean_environment(**variables),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path, *, seconds: float = 180) -> None:
    """Returns once /ready answers 200; fails with the log when it does not."""
    deadline = time.monotonic() + seconds
    # One client, without certificates: loading them takes longer than the request.
    with httpx.Client(timeout=2, verify=False) as client:
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise AssertionError(f"the service ended with {process.returncode}:\n{log.read_text(errors='replace')}")
            try:
                if client.get(f"{url}/ready").status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.05)
    raise AssertionError(f"not ready after {seconds} s:\n{log.read_text(errors='replace')}")


@contextmanager
def start_service(database_url: str, *arguments: str, **variables: str) -> Iterator[RunningService]:
    """`palimpsest serve` on a database, without a worker unless asked for."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        environment = {"DATABASE_URL": database_url, "PORT": str(port), **variables}
        process = spawn("serve", *(arguments or ("--no-worker",)), log=log, **environment)
        running = RunningService(f"http://127.0.0.1:{port}", process, log)
        try:
            wait_until_ready(running.url, process, log)
            yield running
        finally:
            stop(process)


def stop(process: "subprocess.Popen[bytes] | ForkedProcess", *, seconds: float = 90) -> int:
    """Asks a process to end and waits for it."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    return process.wait(seconds)
