"""The embedded PostgreSQL, with real servers: sharing, crashes, odd folders, and every kind of user."""

import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from app.db import embedded
from app.db.embedded import EmbeddedServer, EmbeddedServerError

ROOT = os.geteuid() == 0
REPOSITORY = Path(__file__).parents[2]
USER_PROCESS = """
import sys
from pathlib import Path
from app.db.embedded import EmbeddedServer
server = EmbeddedServer(Path(sys.argv[1]))
server.start()
print("new" if server.is_new else "attached", flush=True)
sys.stdin.readline()
server.release()
"""


def sql(server: EmbeddedServer, statement: str) -> list[tuple[object, ...]]:
    """Run one statement in a connection of its own and return its rows."""
    with psycopg.connect(server.conninfo(user="postgres", dbname="postgres"), autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def postmaster(home: Path) -> int | None:
    """Return the process id of the server that runs in a home folder."""
    try:
        lines = (home / "postgres" / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return None
    pid = int(lines[0]) if lines and lines[0].isdigit() else 0
    return pid if pid and embedded._is_postmaster(pid, home / "postgres") else None


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Wait for a condition, and fail when it does not come true."""
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.02)


def alive(pid: int) -> bool:
    """Say whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def kill_postmaster(home: Path) -> int:
    """Kill the server as a power cut would, leaving its files behind."""
    pid = postmaster(home)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not alive(pid))
    return pid


@contextmanager
def open_folder() -> Generator[Path]:
    """Give a folder anybody may enter, and end the servers below it afterwards."""
    path = Path(tempfile.mkdtemp(prefix="palimpsest-test-", dir="/tmp"))
    path.chmod(0o755)
    yield path
    for data in path.rglob("postmaster.pid"):
        pid = postmaster(data.parent.parent)
        if pid is not None:
            os.kill(pid, signal.SIGQUIT)
            wait_until(lambda pid=pid: not alive(pid))
    shutil.rmtree(path)


@pytest.fixture
def folder() -> Generator[Path]:
    """Give this test a folder of its own."""
    with open_folder() as path:
        yield path


@pytest.fixture
def home(folder: Path) -> Path:
    """Name a home folder that does not exist yet."""
    return folder / "home"


@pytest.fixture(scope="module")
def shared_home() -> Generator[Path]:
    """Name a home folder that tests share, as initdb takes most of their time."""
    with open_folder() as path:
        yield path / "home"


@pytest.fixture
def server(shared_home: Path) -> Generator[EmbeddedServer]:
    """Give a started server in the shared home folder."""
    server = EmbeddedServer(shared_home)
    server.start()
    sql(server, "DROP TABLE IF EXISTS kept")
    yield server
    server.release()


@pytest.fixture
def user_process(home: Path) -> Generator[Callable[[], subprocess.Popen[str]]]:
    """Start processes that use the server until they read a line."""
    started: list[subprocess.Popen[str]] = []

    def begin() -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", USER_PROCESS, str(home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def first_line(process: subprocess.Popen[str]) -> str:
    """Wait for a user process to have the server."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def as_nobody(work: Callable[[], str]) -> str:
    """Run a function in a fork that has become the user nobody."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(pwd.getpwnam("nobody").pw_gid)
            os.setuid(pwd.getpwnam("nobody").pw_uid)
            os.write(writing, work().encode())
        except (EmbeddedServerError, OSError, psycopg.Error, AssertionError) as error:
            os.write(writing, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading) as file:
        answer = file.read()
    os.waitpid(child, 0)
    return answer


@pytest.mark.parametrize(
    ("limit", "cache"),
    [("max", "1024MB"), (str(4 * 2**30), "512MB"), (str(2**29), "128MB"), (str(2**62), "1024MB"), ("", "1024MB")],
)
def test_an_eighth_of_the_memory_is_cache_and_a_container_has_less_than_its_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, cache: str
) -> None:
    pages = {"SC_PHYS_PAGES": 16 * 2**30 // 4096, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(embedded.os, "sysconf", pages.__getitem__)
    there = tmp_path / "memory.max"
    there.write_text(f"{limit}\n")
    monkeypatch.setattr(embedded, "_CONTAINER_LIMITS", (there, tmp_path / "missing"))
    assert f"shared_buffers = '{cache}'\n" in embedded._settings(tmp_path)


def test_new_server_has_pgvector_and_our_settings(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    server = EmbeddedServer(home, said.append)
    with pytest.raises(EmbeddedServerError, match="call start"):
        server.conninfo(user="postgres", dbname="postgres")
    server.start()
    assert server.is_new
    assert said == [f"creating a new PostgreSQL data folder in {home}/postgres", "starting PostgreSQL 18"]
    assert server.log_file == home / "postgres.log"
    assert server.log_file.exists()
    sql(server, "CREATE EXTENSION vector")
    assert sql(server, "SELECT '[1,2]'::vector <-> '[4,6]'::vector") == [(5.0,)]
    expected = {"listen_addresses": "", "fsync": "on", "data_checksums": "on", "jit": "off", "TimeZone": "UTC"}
    expected |= {"max_connections": "100", "server_encoding": "UTF8", "log_min_messages": "warning"}
    assert {name: sql(server, f"SHOW {name}")[0][0] for name in expected} == expected
    assert sql(server, "SELECT datlocprovider, datlocale FROM pg_database WHERE datname = 'postgres'") == [
        ("b", "C.UTF-8")
    ]
    assert sql(server, "SELECT lower('ÄÉ'), 'ß' ~ '[[:alpha:]]'") == [("äé", True)]
    server.start()
    assert not server.is_new
    server.release()
    assert postmaster(home) is None
    server.release()
    monkeypatch.setattr(embedded, "_shared_memory_works", lambda: False)
    server.start()
    assert not server.is_new
    assert sql(server, "SHOW dynamic_shared_memory_type") == [("mmap",)]
    assert sql(server, "SELECT 1 FROM pg_extension WHERE extname = 'vector'") == [(1,)]
    server.release()


def test_server_is_closed_to_others_and_detached_from_us(server: EmbeddedServer, shared_home: Path) -> None:
    pid = postmaster(shared_home)
    assert pid is not None
    found = (shared_home / "postgres").stat()
    assert stat.S_IMODE(found.st_mode) == 0o700
    assert found.st_uid == Path(f"/proc/{pid}").stat().st_uid != 0
    assert os.getsid(pid) != os.getsid(0)
    assert os.getpgid(pid) != os.getpgid(0)
    try:
        opened = {os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()}
    except PermissionError:
        pytest.skip("this container does not let root look into processes of other users")
    assert str(server.log_file) in opened
    assert not [path for path in opened if path.endswith(("users.lock", "start.lock"))]
    assert b"PYTEST" not in Path(f"/proc/{pid}/environ").read_bytes()


def test_last_user_stops_the_server(home: Path, user_process: Callable[[], subprocess.Popen[str]]) -> None:
    users = [user_process() for _ in range(3)]
    assert sorted(first_line(user) for user in users) == ["attached", "attached", "new"]
    pid = postmaster(home)
    for user in users[:2]:
        user.communicate("\n")
        assert user.returncode == 0
        assert postmaster(home) == pid is not None
    server = EmbeddedServer(home)
    server.start()
    users[2].communicate("\n")
    assert sql(server, "SELECT 1") == [(1,)]
    server.release()
    assert postmaster(home) is None
    assert pid is not None
    # Whoever adopted the process may take a moment to collect it.
    deadline = time.monotonic() + 30
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(pid)


def test_killed_user_process_leaves_a_server_to_attach_to(
    home: Path, user_process: Callable[[], subprocess.Popen[str]]
) -> None:
    killed = user_process()
    first_line(killed)
    server = EmbeddedServer(home)
    server.start()
    sql(server, "CREATE TABLE kept AS SELECT 1 AS one")
    os.close(server._use or -1)
    server._use = None
    killed.kill()
    killed.wait()
    orphan = postmaster(home)
    assert orphan is not None
    server.start()
    assert postmaster(home) == orphan
    assert sql(server, "SELECT one FROM kept") == [(1,)]
    server.release()
    assert postmaster(home) is None


def test_killed_server_recovers_what_was_committed(server: EmbeddedServer, shared_home: Path) -> None:
    sql(server, "CREATE TABLE kept (n int)")
    with psycopg.connect(server.conninfo(user="postgres", dbname="postgres")) as busy:
        sql(server, "INSERT INTO kept SELECT generate_series(1, 1000)")
        # A child that is slow to notice the death of its server keeps the next one from starting.
        os.kill(busy.info.backend_pid, signal.SIGSTOP)
        slow = threading.Timer(1, os.kill, (busy.info.backend_pid, signal.SIGCONT))
        slow.start()
        killed = kill_postmaster(shared_home)
        server.start()
        slow.join()
    assert postmaster(shared_home) not in (None, killed)
    assert sql(server, "SELECT count(*) FROM kept") == [(1000,)]


def test_stale_process_id_of_another_program(server: EmbeddedServer, shared_home: Path) -> None:
    sql(server, "CREATE TABLE kept AS SELECT 1 AS one")
    data = shared_home / "postgres"
    killed = kill_postmaster(shared_home)
    user = data.stat().st_uid if ROOT else None
    with subprocess.Popen(["sleep", "60"], user=user) as stranger:
        for path in (data / "postmaster.pid", data / ".s.PGSQL.5432.lock"):
            path.write_text(path.read_text().replace(f"{killed}\n", f"{stranger.pid}\n", 1))
        server.start()
        assert stranger.poll() is None
        assert sql(server, "SELECT one FROM kept") == [(1,)]
        server.release()
        assert stranger.poll() is None
        stranger.kill()


def test_process_id_file_cut_short_by_a_crash(server: EmbeddedServer, shared_home: Path) -> None:
    for content in ("", "\0\0\0\0", "12"):
        server.release()
        (shared_home / "postgres" / "postmaster.pid").write_text(content)
        server.start()
        assert sql(server, "SELECT 1") == [(1,)]


def test_copied_folder_does_not_attach_to_the_original(server: EmbeddedServer, shared_home: Path, folder: Path) -> None:
    copy = folder / "copy"
    shutil.copytree(shared_home, copy, ignore=shutil.ignore_patterns(".s.PGSQL*"))
    if ROOT:
        subprocess.run(["chown", "-R", str((shared_home / "postgres").stat().st_uid), copy / "postgres"], check=True)
    second = EmbeddedServer(copy)
    second.start()
    assert sql(second, "SHOW data_directory") == [(f"{copy}/postgres",)]
    assert sql(server, "SHOW data_directory") == [(f"{shared_home}/postgres",)]
    second.release()
    assert sql(server, "SELECT 1") == [(1,)]


def test_interrupted_initdb(home: Path, user_process: Callable[[], subprocess.Popen[str]]) -> None:
    interrupted = user_process()
    wait_until(lambda: any(home.glob("postgres.new-*/base")))
    interrupted.kill()
    interrupted.wait()
    assert not (home / "postgres").exists()
    server = EmbeddedServer(home)
    server.start()
    assert server.is_new
    assert sql(server, "SELECT 1") == [(1,)]
    server.release()


def test_half_made_folders(home: Path) -> None:
    (home / "postgres").mkdir(parents=True)
    (home / "postgres" / "junk").touch()
    server = EmbeddedServer(home)
    server.start()
    assert server.is_new
    assert [path.name for path in home.glob("postgres.incomplete-*/*")] == ["junk"]
    server.release()
    (home / "postgres" / "PG_VERSION").unlink()
    with pytest.raises(EmbeddedServerError, match="Restore the folder from a backup"):
        server.start()


@pytest.mark.parametrize("name", ["long" * 25, "it's, odd ü"], ids=["long", "odd"])
def test_path_that_cannot_hold_the_socket(folder: Path, name: str) -> None:
    server = EmbeddedServer(folder / name)
    server.start()
    host = conninfo_to_dict(server.conninfo(user="postgres", dbname="postgres"))["host"]
    assert isinstance(host, str)
    assert host.startswith("/tmp/palimpsest-")
    assert stat.S_IMODE(os.stat(host).st_mode) == 0o700
    assert sql(server, "SELECT 1") == [(1,)]
    server.release()
    assert not Path(host).exists()
    Path(host).mkdir(mode=0o777)
    Path(host).chmod(0o777)
    with pytest.raises(EmbeddedServerError, match=r"only user .* can enter"):
        server.start()
    Path(host).rmdir()


def test_deleted_home_does_not_disturb_a_new_one(home: Path) -> None:
    first = EmbeddedServer(home)
    first.start()
    stray = postmaster(home)
    assert stray is not None
    shutil.rmtree(home)
    second = EmbeddedServer(home)
    second.start()
    assert second.is_new
    wait_until(lambda: not alive(stray))
    assert sql(second, "SELECT 1") == [(1,)]
    first._end_use()
    second.release()


def test_server_without_its_socket_is_restarted(
    server: EmbeddedServer, shared_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "_SILENT_SECONDS", 0.5)
    deaf = postmaster(shared_home)
    (shared_home / "postgres" / ".s.PGSQL.5432").unlink()
    server.start()
    assert postmaster(shared_home) not in (None, deaf)
    assert sql(server, "SELECT 1") == [(1,)]


def test_errors_say_what_to_do(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = EmbeddedServer(home)
    server.start()
    server.release()
    with (home / "postgres" / "postgresql.auto.conf").open("a") as file:
        file.write("nonsense = 'yes'\n")
    with pytest.raises(EmbeddedServerError) as caught:
        server.start()
    assert str(home / "postgres.log") in str(caught.value)
    assert 'unrecognized configuration parameter "nonsense"' in str(caught.value)
    assert "DATABASE_URL" in str(caught.value)
    (home / "postgres" / "PG_VERSION").write_text("16\n")
    with pytest.raises(EmbeddedServerError, match="made by PostgreSQL '16'"):
        server.start()
    with pytest.raises(EmbeddedServerError, match="Rename the folder"):
        EmbeddedServer(home / "$x").start()
    (home / "file").touch()
    with pytest.raises(EmbeddedServerError, match="PALIMPSEST_HOME"):
        EmbeddedServer(home / "file").start()
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(EmbeddedServerError, match="DATABASE_URL"):
        server.start()


@pytest.mark.skipif(not ROOT, reason="only root may become another user")
def test_normal_user_then_root(folder: Path) -> None:
    home = folder / "home"
    nobody = pwd.getpwnam("nobody")
    home.mkdir()
    os.chown(home, nobody.pw_uid, nobody.pw_gid)

    def make_table() -> str:
        server = EmbeddedServer(home)
        server.start()
        sql(server, "CREATE TABLE kept AS SELECT 1 AS one")
        server.release()
        return f"new: {server.is_new}"

    def read_table() -> str:
        server = EmbeddedServer(home)
        server.start()
        rows = sql(server, "SELECT one FROM kept")
        server.release()
        return str(rows)

    assert as_nobody(make_table) == "new: True"
    server = EmbeddedServer(home)
    server.start()
    assert sql(server, "SELECT one FROM kept") == [(1,)]
    pid = postmaster(home)
    assert Path(f"/proc/{pid}").stat().st_uid == nobody.pw_uid
    assert as_nobody(read_table) == "[(1,)]"
    assert postmaster(home) == pid
    server.release()
    assert as_nobody(read_table) == "[(1,)]"


@pytest.mark.skipif(not ROOT, reason="only root may become another user")
def test_data_of_somebody_else(server: EmbeddedServer, shared_home: Path) -> None:
    def start() -> str:
        EmbeddedServer(shared_home).start()
        return "started"

    if (shared_home / "postgres").stat().st_uid == pwd.getpwnam("nobody").pw_uid:
        pytest.skip("the server itself runs as nobody here")
    answer = as_nobody(start)
    assert answer.startswith(f"EmbeddedServerError: {shared_home}/postgres belongs to user ")
    assert "this runs as user nobody" in answer
    server.release()
    owner = (shared_home / "postgres").stat().st_uid
    os.chown(shared_home / "postgres", 0, -1)
    with pytest.raises(EmbeddedServerError, match="chown -R palimpsest"):
        server.start()
    os.chown(shared_home / "postgres", owner, -1)


@pytest.mark.skipif(not ROOT, reason="only root has folders that the server's account cannot reach")
def test_programs_and_home_below_a_closed_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    package = embedded.find_programs().parents[1]
    (closed / package.name).mkdir()
    subprocess.run(["cp", "-a", package / "pginstall18", closed / package.name], check=True)
    # The libraries of the programs lie beside the package.
    subprocess.run(["cp", "-a", package.with_name(f"{package.name}.libs"), closed], check=True)
    monkeypatch.setattr(embedded, "find_programs", lambda: closed / package.name / "pginstall18" / "bin")
    bounds = int(Path("/proc/self/status").read_text().partition("CapBnd:")[2].split()[0], 16)
    if bounds & 1 << 2 and shutil.which("setpriv"):
        server = EmbeddedServer(closed / "home")
        server.start()
        sql(server, "CREATE EXTENSION vector")
        pid = postmaster(closed / "home")
        assert Path(f"/proc/{pid}").stat().st_uid != 0
        assert "CapEff:\t0000000000000004\n" in Path(f"/proc/{pid}/status").read_text()
        kill_postmaster(closed / "home")
        server.start()
        assert sql(server, "SELECT 1") == [(1,)]
        server.release()
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(EmbeddedServerError, match="folder which that user can reach"):
        EmbeddedServer(closed / "home").start()
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700
