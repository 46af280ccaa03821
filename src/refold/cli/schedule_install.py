"""`refold schedule install`: a timer of systemd that runs what is due, or a line for crontab.

What is due is run by `cli.scheduled_run`; here is only what calls it.
"""

import os
import shlex
import sys
from pathlib import Path

from refold.config.paths import home
from refold.errors import RefoldError
from refold.headless.streams import print_note, write
from refold.place.private_files import write as write_file
from refold.programs import Programs, TimedOut
from refold.programs import run as run_program

UNIT_NAME = "refold-schedule"
_RUNS_SYSTEMD = Path("/run/systemd/system")
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
    """Write the units and start the timer. Without systemd, print the line for crontab."""
    argv = (sys.executable, "-m", "refold", "schedule", "run")
    values = {name: os.environ[name] for name in _PASSED_VARIABLES if os.environ.get(name)}
    systemctl = Programs(os.environ).find("systemctl") if _RUNS_SYSTEMD.is_dir() else ""
    if not systemctl:
        words = (*(f"{name}={value}" for name, value in values.items()), *argv)
        command = " ".join(shlex.quote(word) for word in words).replace("%", r"\%")
        print_note("systemd does not run here: add this line with `crontab -e`")
        write(f"* * * * * {command}\n")
        return
    folder = _units()
    variables = (f"Environment={_quote_word(f'{k}={v}')}\n" for k, v in values.items())
    command = " ".join(_quote_word(word).replace("$", "$$") for word in argv)
    service = _SERVICE_UNIT.format(environment="".join(variables), command=command)
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


def _start(systemctl: str) -> None:
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


def _units() -> Path:
    folder = os.environ.get("XDG_CONFIG_HOME", "")
    config = Path(folder) if folder.startswith("/") else Path(home(os.environ)) / ".config"
    return config / "systemd" / "user"


def _quote_word(word: str) -> str:
    """Quote a word for systemd, where % is special, too. The caller escapes $, which is
    special in commands only.
    """
    text = word.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + text.replace("%", "%%") + '"'
