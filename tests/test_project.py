"""The project keeps its word: documentation, lock file, package and layout say what is the case."""

import importlib.metadata
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from app import __version__
from tests.service import ROOT

ARCHITECTURE = (ROOT / "app/docs/architecture.md").read_text()


def test_the_lock_holds_every_dependency_with_hashes_and_no_address() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    assert "://" not in lock
    runtime, _, development = lock.partition("# development")
    pinned = set(re.findall(r"^([a-z0-9-]+)==\S+", runtime, flags=re.MULTILINE))
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for requirement in wanted["dependencies"]:
        assert re.split(r"[\[<>=~]", requirement)[0] in pinned
    for requirement in wanted["optional-dependencies"]["dev"]:
        assert re.search(rf"^{requirement}==", runtime + development, flags=re.MULTILINE)
    entries = re.split(r"^(?=[a-z0-9])", lock, flags=re.MULTILINE)[1:]
    assert all("--hash=sha256:" in entry for entry in entries)


def test_every_dependency_has_its_line_in_the_documentation() -> None:
    table = ARCHITECTURE[ARCHITECTURE.index("## Dependencies") :].lower()
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for requirement in [*wanted["dependencies"], *wanted["optional-dependencies"]["dev"]]:
        assert (
            re.split(r"[\[<>=~]", requirement)[0].partition("-api")[0].split("-sdk")[0].split("-exporter")[0] in table
        )


def test_the_version_is_written_once() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "app.__version__"}
    assert importlib.metadata.version("palimpsest") == __version__


@pytest.mark.slow
def test_a_built_package_carries_its_migrations_and_pages(tmp_path: Path) -> None:
    import shutil

    source = tmp_path / "source"
    ignored = shutil.ignore_patterns(".venv", ".git", ".palimpsest", "*.egg-info", "build", "__pycache__", "tests")
    shutil.copytree(ROOT, source, ignore=ignored, symlinks=True)
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--no-build-isolation",
            "-w",
            str(tmp_path),
            ".",
        ],
        cwd=source,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.startswith(f"palimpsest-{__version__}-")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"app/_alembic/env.py", "app/web/reference.html", "app/providers/wordpiece.txt"} <= names
    pages = [*(ROOT / "app/docs").glob("*.md"), *(ROOT / "app/docs").glob("*.html")]
    assert {path.relative_to(ROOT).as_posix() for path in pages} <= names
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "app").rglob("*.py")}
    carried = {
        path.relative_to(ROOT)
        for folder in ("versions", "functions")
        for path in (ROOT / "alembic").glob(f"{folder}/**/*.*")
    }
    migrations = {f"app/_{path.as_posix()}" for path in carried if path.suffix in (".py", ".sql")}
    assert modules
    assert migrations
    assert modules | migrations <= names


def test_the_top_level_is_as_agreed() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout, so what belongs to the project cannot be told from what lies about")
    top = {line.partition("/")[0] for line in listed.stdout.splitlines()}
    assert {name for name in top if not name.startswith(".")} == {
        "CHANGELOG.md", "LICENSE", "Makefile", "README.md", "alembic", "alembic.ini", "app", "deploy", "pyproject.toml",
        "requirements.lock", "tests",
    }  # fmt: skip
