"""Every command of the README is run against a real service, as a reader would run it."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo

from app.db.rls import APP_ROLE
from tests.conftest import as_url
from tests.service import ROOT, clean_environment, free_port, spawn, stop, wait_until_ready

BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", (ROOT / "README.md").read_text(), flags=re.MULTILINE | re.DOTALL)
START, KEYS, PYTHON, CURL, PRODUCTION = range(5)
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


def block(place: int) -> str:
    return BLOCKS[place][1]


@pytest.fixture(scope="module")
def demo() -> Iterator[dict[str, str]]:
    """What `make run` starts, in a home of its own, and the variables that the reader pastes."""
    folder = Path(tempfile.mkdtemp(prefix="palimpsest-readme-"))
    # PostgreSQL's own account has to reach it when the tests run as root.
    folder.chmod(0o755)
    port, log = free_port(), folder / "log"
    process = spawn("serve", "--demo", log=log, PALIMPSEST_HOME=str(folder / "home"), PORT=str(port))
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until_ready(url, process, log, seconds=300)
        keys = dict(re.findall(r"^  (admin|agent) key +(pk_\S+)$", log.read_text(), flags=re.MULTILINE))
        exported = block(KEYS).replace("http://127.0.0.1:8000", url)
        exported = exported.replace("ADMIN=pk_...", f"ADMIN={keys['admin']}")
        exported = exported.replace("AGENT=pk_...", f"AGENT={keys['agent']}")
        yield {"export": exported}
    finally:
        stop(process)
        shutil.rmtree(folder, ignore_errors=True)


def run(script: str) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        env=clean_environment(PATH=PATH),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_block_of_the_readme_is_run_here() -> None:
    assert [kind for kind, _ in BLOCKS] == ["sh", "sh", "python", "sh", "sh"]


def test_make_run_starts_what_these_tests_start() -> None:
    assert block(START).strip() == "make run"
    # Flags of the make that runs the tests would make this one print more.
    environment = {
        name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    }
    planned = subprocess.run(
        ["make", "-n", "run"], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert planned.rstrip().endswith("palimpsest serve --demo")


@pytest.mark.slow
def test_the_session_in_python(demo: dict[str, str]) -> None:
    printed = run(f"{demo['export']}\npython - <<'SESSION'\n{block(PYTHON)}SESSION\n")
    assert "Paris" in printed
    # What Bob believed and believes, and what Carol is told.
    assert printed.splitlines()[-2:] == ["['Paris', 'Rome']", "[]"]


@pytest.mark.slow
def test_the_session_with_curl(demo: dict[str, str]) -> None:
    printed = run(demo["export"] + block(CURL)).splitlines()
    recalled, looked_back, forgotten = printed[3], printed[5], printed[6]
    assert "Paris" in recalled
    assert "Paris" in looked_back
    assert "Rome" not in looked_back
    assert '"tombstone"' in forgotten


@pytest.mark.slow
def test_production(empty_database: str, app_password: str, tmp_path: Path) -> None:
    extra = {"password": app_password} if app_password else {}
    addresses = {
        "DATABASE_MIGRATION_URL": as_url(empty_database),
        "DATABASE_URL": as_url(make_conninfo(empty_database, user=APP_ROLE, **extra)),
    }
    script = block(PRODUCTION)
    for variable, address in addresses.items():
        script, replaced = re.subn(rf"(?<=export {variable}=)\S+", lambda _, to=address: f"'{to}'", script)
        assert replaced == 1
    port, log = free_port(), tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", script],
            env=clean_environment(PATH=PATH, PORT=str(port), PALIMPSEST_HOME=str(tmp_path)),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        wait_until_ready(f"http://127.0.0.1:{port}", process, log, seconds=300)
        printed = log.read_text()
        assert "everything is in order" in printed
        assert re.search(r"^pk_\S+$", printed, flags=re.MULTILINE)
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)
