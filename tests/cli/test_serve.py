"""`palimpsest serve` as a person starts it: the embedded database, the demo keys, a second start, Ctrl-C, kill -9."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.service import RunningService, free_port, palimpsest, spawn, stop, wait_until_ready

STARTED: list[RunningService] = []


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A data folder that PostgreSQL's account can reach, whoever runs the tests."""
    import shutil
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="palimpsest-serve-"))
    folder.chmod(0o755)
    yield folder / "home"
    for running in STARTED:
        # One that a failed test left behind must not trouble the next.
        if running.process.poll() is None:
            running.process.kill()
        running.process.wait()
    STARTED.clear()
    ended = [item for item in psutil.process_iter(["cmdline"]) if str(folder) in " ".join(item.info["cmdline"] or [])]
    for process in ended:
        process.kill()
    psutil.wait_procs(ended, timeout=10)
    shutil.rmtree(folder, ignore_errors=True)


def start(home: Path, port: int | None = None, **variables: str) -> RunningService:
    port = port or free_port()
    log = home.parent / f"log-{time.monotonic_ns()}"
    process = spawn("serve", log=log, PALIMPSEST_HOME=str(home), PORT=str(port), **variables)
    running = RunningService(f"http://127.0.0.1:{port}", process, log)
    STARTED.append(running)
    return running


def ready(running: RunningService) -> RunningService:
    wait_until_ready(running.url, running.process, running.log)
    return running


def printed_keys(output: str) -> dict[str, str]:
    return dict(re.findall(r"^  (admin|agent) key +(pk_\S+)$", output, flags=re.MULTILINE))


def pasted(command: str, **variables: str) -> dict[str, Any]:
    """Run a printed command as a person pastes it, and return the answer."""
    done = subprocess.run(
        ["/bin/sh", "-c", command], env={**os.environ, **variables}, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def family(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def workers_of(pid: int) -> list[psutil.Process]:
    found: list[psutil.Process] = []
    for process in family(pid):
        # Programs that run for a moment only may be gone before they are asked.
        with suppress(psutil.Error):
            if process.cmdline()[-1:] == ["worker"]:
                found.append(process)
    return found


@pytest.mark.slow
def test_from_nothing_to_an_answer_and_back(home: Path) -> None:
    running = ready(start(home))
    output = running.output()
    keys = printed_keys(output)
    assert set(keys) == {"admin", "agent"}
    for name, path in (("Documentation", "docs"), ("API reference", "schema")):
        assert f"  {name} {running.url}/{path}\n" in output
        assert httpx.get(f"{running.url}/{path}").status_code == 200
    remember, recall = re.findall(r"^  (curl -s .*)$", output, flags=re.MULTILINE)
    assert all(keys["agent"] in command for command in (remember, recall))
    note = pasted(remember)["note"]
    (found,) = pasted(recall)["results"]
    assert (found["note_id"], found["content"]) == (note["note_id"], note["content"])
    me = httpx.get(f"{running.url}/v1/whoami", headers={"Authorization": f"Bearer {keys['agent']}"})
    assert (me.status_code, me.json()["tenant_id"], me.json()["project_id"]) == (200, "demo", "default")

    second = palimpsest("serve", PALIMPSEST_HOME=str(home), PORT=str(free_port()))
    assert second.returncode == 1
    assert "already running" in second.stderr
    assert str(running.process.pid) in second.stderr

    made = palimpsest(
        "keys", "create", "--tenant", "demo", "--project", "default", "--agent", "wren", "--json",
        PALIMPSEST_HOME=str(home),
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    assert httpx.get(f"{running.url}/ready").status_code == 200, "the command must not stop the server it shares"

    children = family(running.process.pid)
    os.killpg(running.process.pid, signal.SIGINT)
    assert running.process.wait(30) == 0
    _, alive = psutil.wait_procs(children, timeout=30)
    assert alive == []
    assert not (home / "postgres" / "postmaster.pid").exists()
    assert "Traceback" not in running.output()

    started = time.monotonic()
    again = ready(start(home))
    assert time.monotonic() - started < 20
    assert printed_keys(again.output()) == {}
    assert "keys create" in again.output()
    for command in re.findall(r"^  (curl -s .*)$", again.output(), flags=re.MULTILINE):
        assert pasted(command, AGENT=keys["agent"]).keys() & {"note", "results"}
    me = httpx.get(f"{again.url}/v1/whoami", headers={"Authorization": f"Bearer {keys['admin']}"})
    assert me.status_code == 200
    assert stop(again.process) == 0


@pytest.mark.slow
def test_kill_9_loses_nothing_and_the_next_start_recovers(home: Path) -> None:
    port = free_port()
    first = ready(start(home, port))
    keys = printed_keys(first.output())
    headers = {"Authorization": f"Bearer {keys['agent']}"}
    made = httpx.post(f"{first.url}/v1/gardens", json={"slug": "kept"}, headers=headers)
    assert made.status_code == 201
    first.process.kill()
    first.process.wait()

    second = ready(start(home, port))
    found = httpx.get(f"{second.url}/v1/gardens", headers=headers).json()
    assert [garden["slug"] for garden in found["gardens"]] == ["kept"]

    postmaster = int((home / "postgres" / "postmaster.pid").read_text().split()[0])
    psutil.Process(postmaster).kill()
    second.process.kill()
    second.process.wait()
    third = ready(start(home, port))
    found = httpx.get(f"{third.url}/v1/gardens", headers=headers).json()
    assert [garden["slug"] for garden in found["gardens"]] == ["kept"]
    assert stop(third.process) == 0


@pytest.mark.slow
def test_when_the_database_dies_the_service_says_so_and_brings_it_back(home: Path) -> None:
    running = ready(start(home))
    keys = printed_keys(running.output())
    headers = {"Authorization": f"Bearer {keys['agent']}"}
    with httpx.Client(base_url=running.url, headers=headers, timeout=60, verify=False) as client:
        assert client.get("/v1/whoami").status_code == 200
        postmaster = int((home / "postgres" / "postmaster.pid").read_text().split()[0])
        psutil.Process(postmaster).kill()
        time.sleep(0.3)
        seen: set[tuple[int, str]] = set()
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            answers = [client.get("/v1/whoami"), client.get("/ready"), client.get("/health")]
            assert answers[2].status_code == 200
            if answers[0].status_code == 200 and answers[1].status_code == 200:
                break
            if answers[0].status_code != 200:
                seen.add((answers[0].status_code, answers[0].json()["error"]["code"]))
            time.sleep(0.1)
        assert seen <= {(503, "unavailable")}
        assert "starting it again" in running.output()
        assert client.post("/v1/gardens", json={"slug": "back"}).status_code == 201
    assert stop(running.process) == 0


@pytest.mark.slow
@pytest.mark.parametrize("signals", [[signal.SIGHUP], [signal.SIGINT, signal.SIGINT]], ids=["closed terminal", "twice"])
def test_it_stops_at_once_and_restarts_no_process(home: Path, signals: list[signal.Signals]) -> None:
    running = ready(start(home))
    deadline = time.monotonic() + 60
    while "worker_started" not in running.output() and time.monotonic() < deadline:
        time.sleep(0.1)
    children = family(running.process.pid)
    for number in signals:
        os.killpg(running.process.pid, number)
        time.sleep(0.02)
    started = time.monotonic()
    assert running.process.wait(30) == 0
    assert time.monotonic() - started < 10
    _, alive = psutil.wait_procs(children, timeout=30)
    assert alive == []
    assert running.output().count("worker_started") == 1
    assert not (home / "postgres" / "postmaster.pid").exists()


@pytest.mark.slow
def test_a_worker_whose_supervisor_is_gone_ends_by_itself(home: Path) -> None:
    running = start(home)
    deadline = time.monotonic() + 60
    workers: list[psutil.Process] = []
    while not workers and time.monotonic() < deadline:
        workers = workers_of(running.process.pid)
        time.sleep(0.01)
    # Killed while the worker is still starting, before it could look who its parent is.
    running.process.kill()
    running.process.wait()
    _, alive = psutil.wait_procs(workers, timeout=60)
    assert alive == []


def test_a_port_in_use_is_reported_clearly(home: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = palimpsest("serve", PALIMPSEST_HOME=str(home), PORT=str(port))
    assert ended.returncode == 1
    assert f"127.0.0.1:{port}" in ended.stderr
    assert "PORT" in ended.stderr


@pytest.mark.slow
def test_a_worker_runs_beside_the_api_and_is_replaced_when_it_dies(home: Path) -> None:
    running = ready(start(home))

    deadline = time.monotonic() + 60
    while "worker_started" not in running.output() and time.monotonic() < deadline:
        time.sleep(0.1)
    (first,) = workers_of(running.process.pid)
    first.kill()
    while running.output().count("worker_started") < 2 and time.monotonic() < deadline + 15:
        time.sleep(0.1)
    (second,) = workers_of(running.process.pid)
    assert second.pid != first.pid
    metrics = httpx.get(f"{running.url}/metrics").text
    assert 'route="/ready"' in metrics, "the API's own figures are among those of all processes"
    assert stop(running.process) == 0
