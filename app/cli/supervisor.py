"""The processes of `palimpsest serve`: API processes behind one port, and a worker beside them."""

import asyncio
import ctypes
import fcntl
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import psycopg
from granian import Granian
from granian.constants import HTTPModes, Interfaces, Loops
from granian.http import HTTP1Settings

from app.cli.administration import Demo, ensure_demo, with_database
from app.cli.installation import Say, database_of, migrate
from app.config import Settings
from app.db.releases import NOT_MIGRATED
from app.embeddings.embedders import Embedders
from app.embeddings.models import check_active
from app.errors import StartupError
from app.jobs.worker import Worker
from app.main import asgi, build_registry, check_policies, open_database
from app.telemetry.logs import configure_logs
from app.telemetry.traces import configure_traces
from app.web.edge import Edge
from app.web.monitoring import monitoring

PORT_PATIENCE_SECONDS = 4.0
PARENT_POLL_SECONDS = 0.5
FIRST_RESPAWN_SECONDS = 1.0
# Connections that wait to be accepted; the system may allow fewer.
BACKLOG = 4096
MOST_FILES = 65_536
# Files that a process needs beside the connections of callers: the database, providers, its modules.
OTHER_FILES = 512
LAST_RESPAWN_SECONDS = 30.0
PARENT = "PALIMPSEST_PARENT"


@contextmanager
def only_one(settings: Settings) -> Generator[None]:
    """Hold the lock of the data folder, or raise StartupError when another service holds it."""
    try:
        settings.home.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise StartupError(
            f"PALIMPSEST_HOME: {settings.home} cannot be used ({problem.strerror}); name a folder that can be written.",
            code="home_unusable",
        ) from problem
    with (settings.home / "serve.lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as problem:
            raise StartupError(_already_running(settings.home, lock), code="already_running") from problem
        lock.truncate(0)
        lock.write(f"{os.getpid()} {_url(settings)}\n")
        lock.flush()
        yield
        lock.truncate(0)


def _already_running(home: Path, lock: IO[str]) -> str:
    lock.seek(0)
    pid, _, address = lock.read().strip().partition(" ")
    return (
        f"Palimpsest is already running on the data in {home}"
        + (f": process {pid}, {address}" if pid else "")
        + ". Stop it first, or set PALIMPSEST_HOME and PORT to start another one beside it."
    )


def check_port(settings: Settings) -> None:
    """Raise StartupError when the port stays taken for some seconds, in case a killed service is still ending."""
    deadline = time.monotonic() + PORT_PATIENCE_SECONDS
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    while True:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((settings.host, settings.port))
                return
            except OSError as problem:
                if time.monotonic() > deadline:
                    raise StartupError(
                        f"{settings.host}:{settings.port} cannot be used ({problem.strerror}). "
                        "Set PORT to a free port, or HOST to an address of this machine.",
                        code="port_unusable",
                    ) from problem
        time.sleep(0.2)


async def check_database(settings: Settings) -> None:
    """Raise StartupError when the database is not ready."""
    db = open_database(settings)
    try:
        await db.open()
        try:
            await check_policies(db, strict=settings.rls_policy_strict)
        except psycopg.errors.InsufficientPrivilege as problem:
            raise StartupError("The schema is not there; run palimpsest migrate.", code=NOT_MIGRATED) from problem
        await check_active(db, settings)
    finally:
        await db.close()


def serve(settings: Settings, *, with_worker: bool, demo: bool, say: Say) -> None:
    """Prepare the database and serve until stopped."""
    with ExitStack() as stack:
        if settings.embedded:
            stack.enter_context(only_one(settings))
        check_port(settings)
        ready = stack.enter_context(database_of(settings, say=say, watch=True))
        # With DATABASE_MIGRATION_URL the service migrates; otherwise it only checks.
        if ready.database_migration_url is not None:
            migrate(ready, keep_newer=not settings.embedded, say=say)
        asyncio.run(check_database(ready))
        made = with_database(ready, ensure_demo) if demo or settings.embedded else None
        _announce(ready, made, tried_demo=demo or settings.embedded)
        run_processes(ready, with_worker=with_worker, say=say)
        say("stopped")


def _url(settings: Settings) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{settings.port}"


def _announce(settings: Settings, made: Demo | None, *, tried_demo: bool) -> None:
    url = _url(settings)
    lines = ["", f"  Palimpsest    {url}", f"  Documentation {url}/docs", f"  API reference {url}/schema"]
    if made is not None:
        lines += [
            "",
            "  Tenant demo, project default. These keys are shown only now; keep them:",
            f"  admin key     {made.admin_key}",
            f"  agent key     {made.agent_key}",
            *_first_commands(url, f"'Authorization: Bearer {made.agent_key}'"),
        ]
    elif tried_demo:
        lines += [
            "",
            "  The keys of tenant demo were shown at the first start. To create another one:",
            "  .venv/bin/palimpsest keys create --tenant demo --project default --agent my-agent",
            *_first_commands(url, '"Authorization: Bearer $AGENT"'),
        ]
    print("\n".join([*lines, ""]), flush=True)


def _first_commands(url: str, header: str) -> list[str]:
    return [
        "",
        "  Remember, then recall:",
        f"""  curl -s {url}/v1/notes -H {header} -d '{{"content": "Alice prefers tea."}}'""",
        f"""  curl -s {url}/v1/recall -H {header} -d '{{"query": "What does Alice drink?", "rendered": true}}'""",
    ]


def run_processes(settings: Settings, *, with_worker: bool, say: Say) -> None:
    """Serve until stopped, and leave no process behind."""
    assert settings.database_url is not None
    os.environ["DATABASE_URL"] = settings.database_url
    # Only migrations need the owner's connection: processes must not inherit it.
    os.environ.pop("DATABASE_MIGRATION_URL", None)
    os.environ[PARENT] = str(os.getpid())
    stopping = _Stopping()
    worker = _WorkerProcess(say, stopping) if with_worker else None
    try:
        if worker is not None:
            worker.start()
        server = Granian(
            "app.cli.supervisor:api",
            address=settings.host,
            port=settings.port,
            interface=Interfaces.ASGI,
            workers=settings.web_processes,
            loop=Loops.uvloop,
            http=HTTPModes.http1,
            http1_settings=HTTP1Settings(header_read_timeout=int(settings.header_seconds * 1000)),
            backlog=BACKLOG,
            backpressure=settings.max_connections or _connections_within_file_limit(),
            factory=True,
            log_enabled=False,
            respawn_failed_workers=True,
            workers_kill_timeout=int(settings.drain_seconds) + 5,
        )
        _stop_together(server, worker, stopping)
        try:
            server.serve()
        except SystemExit:
            # Ctrl-C reaches the API processes too; one that ends before its parent asks has not failed.
            if not stopping.requested:
                raise
    finally:
        if worker is not None:
            worker.stop(settings.drain_seconds + 5)


def _connections_within_file_limit() -> int:
    """Raise the limit of open files as far as allowed, and return how many connections a process can have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    files = MOST_FILES if soft == resource.RLIM_INFINITY else min(soft, MOST_FILES)
    return max(files - OTHER_FILES, files // 2)


class _Stopping:
    """Whether a signal has requested a stop; a plain flag, since a signal handler must not take locks."""

    requested = False


def _stop_together(server: Any, worker: "_WorkerProcess | None", stopping: _Stopping) -> None:
    """Stop server and worker at the first signal; SIGHUP (a closed terminal) also stops instead of reloading."""
    interrupt = server.signal_handler_interrupt

    def finish() -> None:
        if worker is not None:
            worker.request_stop()
        interrupt()

    def stop(*_: Any) -> None:
        # A handler interrupts the main thread anywhere, possibly while it holds a lock. What takes locks therefore runs
        # on a thread of its own, and only once.
        if stopping.requested:
            return
        stopping.requested = True
        server.interrupt_signal = True
        threading.Thread(target=finish).start()

    server.signal_handler_interrupt = stop
    server.signal_handler_reload = stop


class _WorkerProcess:
    """The worker process beside the API, restarted if it dies."""

    def __init__(self, say: Say, service: _Stopping) -> None:
        self._say = say
        self._service = service
        self._process: subprocess.Popen[bytes] | None = None
        self.stopping = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        self._spawn()
        self._watcher.start()

    def _spawn(self) -> None:
        # In its own process group, so that Ctrl-C reaches only the supervisor, which stops the worker.
        # It opens no port: the API of the same service answers for it and shows its metrics.
        environment = {**os.environ, "MONITORING_PORT": "0"}
        self._process = subprocess.Popen([sys.executable, "-m", "app.cli", "worker"], process_group=0, env=environment)

    def _watch(self) -> None:
        pause = FIRST_RESPAWN_SECONDS
        while not self.stopping.wait(pause) and not self._service.requested:
            if self._process is None or self._process.poll() is None:
                pause = FIRST_RESPAWN_SECONDS
                continue
            self._say(f"the worker ended with code {self._process.returncode}; starting it again")
            self._spawn()
            # Back off while it keeps dying.
            pause = min(pause * 2, LAST_RESPAWN_SECONDS)

    def request_stop(self) -> None:
        """Ask the worker to drain, and restart it no more."""
        self.stopping.set()
        self._watcher.join()
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def stop(self, seconds: float) -> None:
        """Wait for the worker to end, and kill it after some seconds."""
        self.request_stop()
        if self._process is None:
            return
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def watch_parent() -> None:
    """End this process when its supervisor is gone, so that kill -9 leaves no process behind."""
    parent = os.environ.get(PARENT)
    if parent is None:
        return

    def watch() -> None:
        while os.getppid() == int(parent):
            time.sleep(PARENT_POLL_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def api() -> Edge:
    """Return the application of an API process."""
    # Ctrl-C goes to the whole process group, and a second signal while the server handles the first can deadlock it.
    # In its own group a process is stopped by its parent alone, once.
    os.setpgid(0, 0)
    if sys.platform == "linux":
        # Ends with its parent at once, which frees the port; the parent thread is the main one, which lives as long.
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    watch_parent()
    return asgi()


def run_worker(settings: Settings) -> None:
    """Run jobs until SIGTERM or SIGINT, then drain."""
    configure_logs(settings.log_level)
    configure_traces(settings.otlp_endpoint, service="palimpsest-worker")
    watch_parent()
    asyncio.run(_work(settings))


async def _work(settings: Settings) -> None:
    db = open_database(settings)
    embedders = Embedders(settings)
    try:
        await db.open()
        await check_policies(db, strict=settings.rls_policy_strict)
        await check_active(db, settings)
        worker = Worker(db, build_registry(db, settings, embedders=embedders), settings)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, worker.stop)
        async with monitoring(db, settings):
            await worker.run()
    finally:
        await embedders.aclose()
        await db.close()
