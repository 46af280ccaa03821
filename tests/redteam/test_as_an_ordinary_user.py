"""The attacks again as an ordinary user, whose sandbox is set up in another way.

Run as root: the same tests as `nobody`, in a mount namespace in which Python, its packages
and this project are at a place that every user can enter.
"""

import os
import pwd
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from refold.programs import Programs

_PROJECT = Path(__file__).parents[2]
_TESTS = (
    "tests/redteam/test_repository_attacks.py", "tests/place/test_sandbox_races.py",
    "tests/place/test_socket_guard.py", "tests/place/test_confined_reads.py",
    "tests/place/test_command_filter.py", "tests/place/test_named_hosts.py",
)  # fmt: skip
_SCRIPT = """
set -e
site="$4/venv/lib/$(basename "$(dirname "$2")")/site-packages"
mkdir -p "$site" "$4/venv/bin"
mount --bind "$1" "$4/python"; mount --bind "$2" "$site"; mount --bind "$3" "$4/project"
ln -s "$4/python/bin/$5" "$4/venv/bin/python"
printf 'home = %s/python/bin\\ninclude-system-site-packages = false\\n' "$4" > "$4/venv/pyvenv.cfg"
cd "$4/project"
export HOME="$4/home" TMPDIR="$4/tmp" TESTS_ON_DISK="$4/home" PYTHONDONTWRITEBYTECODE=1
export LD_LIBRARY_PATH="$4/python/lib" PYTHONPATH="$4/project/src:$4/project"
python="$4/venv/bin/python"; ids=$6; shift 6
exec setpriv --reuid "${ids%:*}" --regid "${ids#*:}" --clear-groups --no-new-privs \\
  "$python" -P -m pytest -p no:cacheprovider -q -n 2 "$@"
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_attack_fails_for_an_ordinary_user() -> None:
    done = as_nobody(*_TESTS)

    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert "skipped" not in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_tests_of_programs_that_need_namespaces_pass_for_an_ordinary_user() -> None:
    done = as_nobody("-m", "peer", "tests/place/test_programs_that_need_namespaces.py")

    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


def as_nobody(*text: str) -> subprocess.CompletedProcess[str]:
    """Run pytest with these words. Skips where that takes what is missing, or where these tests run so anyway."""
    if os.geteuid() != 0:
        pytest.skip("this is one: the tests themselves have said it")
    programs = Programs(os.environ)
    missing = [name for name in ("unshare", "setpriv", "mount") if not programs.find(name)]
    if missing:
        pytest.skip(f"to become one takes {', '.join(missing)}")
    nobody = pwd.getpwnam("nobody")
    packages = next(path for path in sys.path if path.endswith("site-packages"))
    with tempfile.TemporaryDirectory(prefix="refold-test-", dir="/var/lib") as folder:
        Path(folder).chmod(0o755)
        for name in ("python", "project", "home", "tmp"):
            Path(folder, name).mkdir()
        for name in ("home", "tmp"):
            os.chown(Path(folder, name), nobody.pw_uid, nobody.pw_gid)
        python = Path(sys.base_prefix), os.path.basename(os.path.realpath(sys.executable))
        return subprocess.run(
            ["unshare", "--mount", "bash", "-c", _SCRIPT, "bash", str(python[0]), packages,
             str(_PROJECT), folder, python[1], f"{nobody.pw_uid}:{nobody.pw_gid}", *text],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
