"""Runs commands and workers in processes forked from one that imported the application once.

Importing takes longer than most commands. Services are started anew: they choose the store of their metrics before the
import.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

# Imported before the first fork, with what commands import when they run.
import app.cli.doctor
import app.cli.supervisor
import app.db.repair
import app.embeddings.administration
import app.objects.entity_links.backfill
import app.objects.types.installation  # noqa: F401
from app.cli.main import main
from app.db.schema import load_metadata
from tests.service import ROOT, clean_environment

load_metadata()
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload([__name__])


class ForkedProcess:
    """A command that runs in a process of its own, used as a subprocess.Popen is; what it prints goes to two files."""

    def __init__(self, arguments: Sequence[str], *, environment: dict[str, str], stdout: Path, stderr: Path) -> None:
        self._arguments = list(arguments)
        # A daemon: killed at the latest when the tests end.
        self._process = PROCESSES.Process(target=_run, args=(self._arguments, environment, stdout, stderr), daemon=True)
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(self._arguments, timeout or 0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run_command(
    arguments: Sequence[str], *, environment: dict[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    with tempfile.TemporaryDirectory() as folder:
        stdout, stderr = Path(folder) / "stdout", Path(folder) / "stderr"
        process = ForkedProcess(arguments, environment=environment, stdout=stdout, stderr=stderr)
        try:
            returncode = process.wait(timeout)
        except BaseException:
            process.kill()
            process.wait()
            raise
        return subprocess.CompletedProcess(arguments, returncode, stdout.read_text(), stderr.read_text())


def start_worker(*, log: Path, **variables: str) -> ForkedProcess:
    """Start a worker with these settings, and leave it running."""
    return ForkedProcess(["worker"], environment=clean_environment(**variables), stdout=log, stderr=log)


@contextmanager
def killed_worker(**variables: str) -> Iterator[ForkedProcess]:
    """A worker that is killed at the end, not asked to stop."""
    with tempfile.TemporaryDirectory() as folder:
        process = start_worker(log=Path(folder) / "log", **variables)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def _run(arguments: list[str], environment: dict[str, str], stdout: Path, stderr: Path) -> None:
    os.setsid()
    for stream, path in ((sys.stdout, stdout), (sys.stderr, stderr)):
        with path.open("a") as file:
            os.dup2(file.fileno(), stream.fileno())
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    os.chdir(ROOT)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["palimpsest", *arguments]
    sys.exit(main(arguments))
