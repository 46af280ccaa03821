"""A key that a program of the person's own prints, such as a password manager.

It runs without a shell, in the person's home and not in the workspace: what lies in
somebody's repository must not decide what is run for a key. Nobody can type
anything into it. What it prints on standard error goes into the message when it
fails; what it prints on standard output never does.
"""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress

from refold import programs
from refold.errors import BadInput, said_by
from refold.programs import Programs
from refold.session.secrets import Masks

LONGEST = 30.0  # seconds; a person may have to unlock something
_LAST_WORDS = 1000  # characters of standard error in a message


def run(command: Sequence[str], environ: Mapping[str, str], within: float = LONGEST) -> str:
    """The first line it prints. Raises `BadInput` that names the program."""
    program = command[0]
    home = environ.get("HOME", "")
    try:
        started = programs.start(
            (_found(program, environ), *command[1:]),
            cwd=home if os.path.isdir(home) else "/",
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # no terminal to ask on, and a group to end
        )
    except OSError as error:
        why = said_by(error)
        raise BadInput(f"the key_command {program!r} cannot be run: {why}") from error
    with started:
        try:
            out, err = started.communicate(timeout=within)
        except subprocess.TimeoutExpired as error:
            _end(started)
            raise BadInput(
                f"the key_command {program!r} gave no key within {within:g} s"
            ) from error
        except BaseException:  # Ctrl+C
            _end(started)
            raise
    key = (out.decode("utf-8", "replace").splitlines() or [""])[0].strip()
    said = _said(err.decode("utf-8", "replace"), key)
    if started.returncode:
        raise BadInput(
            f"the key_command {program!r} ended with code {started.returncode}{said}"
        )
    if not key:
        raise BadInput(f"the key_command {program!r} printed no key{said}")
    return key


def _found(program: str, environ: Mapping[str, str]) -> str:
    try:
        return Programs(environ).need(os.path.expanduser(program))
    except BadInput as error:
        raise BadInput(f"the key_command {program!r} cannot be run: {error}") from error


def _end(started: subprocess.Popen[bytes]) -> None:
    """With all that it has started, even if it is gone itself."""
    with suppress(ProcessLookupError):
        os.killpg(started.pid, signal.SIGKILL)


def _said(words: str, key: str) -> str:
    """What it said, on one line; some programs say their secrets there too."""
    masked = Masks((key,)).mask(words.encode()).decode("utf-8", "replace")
    masked = masked.replace(key, "[secret]") if key else masked
    line = " ".join(masked.split())[-_LAST_WORDS:]
    return f": {line}" if line else ""
