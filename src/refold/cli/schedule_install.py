"""`refold schedule install`: lets systemd or cron run due schedules regularly.

The command installs a systemd timer, or prints a line for crontab. `cli.scheduled_run` runs the
schedules.
"""

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from refold.config.paths import home
from refold.errors import RefoldError
from refold.headless.streams import print_note, write
from refold.place.private_files import write as write_file
from refold.programs import Programs, TimedOut
from refold.programs import run as run_program

UNIT_NAME = "refold-schedule"
_SYSTEMD_DIRECTORY = Path("/run/systemd/system")  # exists if systemd runs
_PASSED_VARIABLES = (
    "REFOLD_BUCKET",
    "REFOLD_CLUSTER_KEY",
    "REFOLD_HOME",
    "REFOLD_SESSIONS",
    "REFOLD_TENANT",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
)
_SERVICE_UNIT = """\
[Unit]
Description=Run what refold has scheduled

[Service]
Type=oneshot
{environment}ExecStart={command}
"""
_TIMER_UNIT = f"""\
[Unit]
Description=Run what refold has scheduled, every minute

[Timer]
OnCalendar=*-*-* *:*:00
AccuracySec=1s
Unit={UNIT_NAME}.service

[Install]
WantedBy=timers.target
"""


def install(*, only_print: bool) -> None:
    """Install the systemd units and start the timer; without systemd, print a crontab line.

    With `only_print`, print the units without installing them.
    """
    argv = (sys.executable, "-m", "refold", "schedule", "run")
    assignments = [
        f"{name}={os.environ[name]}" for name in _PASSED_VARIABLES if os.environ.get(name)
    ]
    systemctl = ""
    if _SYSTEMD_DIRECTORY.is_dir():  # only if systemd runs
        systemctl = Programs(os.environ).find("systemctl")
    if not systemctl:
        _print_crontab_line((*assignments, *argv))
        return
    folder = _unit_directory()
    environment = "".join(f"Environment={_quote_word(text)}\n" for text in assignments)
    # systemd replaces $NAME in a command, but not in Environment=
    command = " ".join(_quote_word(word).replace("$", "$$") for word in argv)
    service = _SERVICE_UNIT.format(environment=environment, command=command)
    for name, text in (
        (f"{UNIT_NAME}.service", service),
        (f"{UNIT_NAME}.timer", _TIMER_UNIT),
    ):
        if only_print:
            write(f"# {folder / name}\n{text}\n")
        else:
            folder.mkdir(parents=True, exist_ok=True)
            write_file(folder / name, text)
            write(f"wrote {folder / name}\n")
    if not only_print:
        _start(systemctl)


def _print_crontab_line(words: Sequence[str]) -> None:
    # a bare % is a line break in crontab
    command = " ".join(shlex.quote(word) for word in words).replace("%", r"\%")
    print_note("systemd does not run here: add this line with `crontab -e`")
    write(f"* * * * * {command}\n")


def _start(systemctl: str) -> None:
    """Start the timer; each command gets 30 s. Raises `RefoldError` if one fails."""
    for words in (("daemon-reload",), ("enable", "--now", f"{UNIT_NAME}.timer")):
        try:
            result = run_program((systemctl, "--user", *words), 30, env=dict(os.environ))
        except (OSError, TimedOut) as error:
            raise RefoldError(f"systemctl --user {words[0]} failed: {error}") from error
        if result.returncode:
            message = result.stderr.decode(errors="replace").strip()
            raise RefoldError(f"systemctl --user {words[0]} failed: {message}")
    write(
        f"started {UNIT_NAME}.timer: it runs what is due every minute while you are logged in\n"
    )
    print_note("`loginctl enable-linger` keeps it running after you log out")


def _unit_directory() -> Path:
    """Return the directory of the user's systemd units."""
    folder = os.environ.get("XDG_CONFIG_HOME", "")
    config = Path(folder) if folder.startswith("/") else Path(home(os.environ)) / ".config"
    return config / "systemd" / "user"


def _quote_word(word: str) -> str:
    """Return `word` quoted for a systemd unit, with each % escaped.

    The caller must escape $, which is special only in commands.
    """
    text = word.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + text.replace("%", "%%") + '"'
