"""The sources of a provider's key, and the order in which they are tried.

First the key of a tenant, on a worker, then the environment, then the `key_command` of the
settings, then the keyring of the operating system, then `credentials.toml`. The command and the keyring may take long and ask the
user something, so each is used once, when the key is needed. `credentials` and `keyring`
store keys.
"""

import os
import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from threading import Lock
from types import MappingProxyType
from typing import Literal, TypeAlias

from msgspec import Struct

from refold import programs
from refold.config import keyring
from refold.config.settings import Provider as OwnProvider
from refold.errors import BadInput, reason_of
from refold.programs import Programs
from refold.provider import catalog
from refold.provider.spec import ProviderSpec
from refold.session.redactor import Redactor
from refold.values.secret_mask import SECRET_MASK

Source: TypeAlias = Literal["tenant", "environment", "key_command", "keyring", "file"]
_MAX_KEY_CHARS = 4096
_QUOTE_CHARS = "\"'`“”‘’"


class TenantKey(Struct, frozen=True, omit_defaults=True):
    """`base_url` is the address of the provider or of a gateway; "": the usual one."""

    key: str
    base_url: str = ""

    def __repr__(self) -> str:
        return "TenantKey(…)"


class FoundKey(Struct, frozen=True):
    """A key, and where it was found."""

    key: str
    source: Source
    variable: str = ""  # in the environment

    @property
    def text_for_wire(self) -> str:
        """The key as it is passed to a wire; "" if the wire reads it from the environment."""
        return "" if self.source == "environment" else self.key

    def __repr__(self) -> str:
        return f"Held({self.source})"


class Keys:
    """Finds the keys of providers. `learn` is called with each key read after the start, to mask it."""

    def __init__(
        self,
        providers: Mapping[str, OwnProvider],
        environ: Mapping[str, str],
        stored_keys: Mapping[str, str],
        learn: Callable[[str], None],
        tenant_keys: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._own, self._environ, self._stored = providers, environ, stored_keys
        self._of_tenant = tenant_keys
        self._learn, self._lock = learn, Lock()
        self._found: dict[str, FoundKey] = {}
        self.trouble = ""  # the error of the last access to the keyring

    def uses_key(self, spec: ProviderSpec) -> bool:
        """Whether a key has any effect for this provider."""
        return bool(spec.key_env) or spec.name in self._own or spec.name in self._stored

    def has_known_key(self, spec: ProviderSpec) -> bool:
        """Whether a key is known to exist, without asking a program or the keyring."""
        return bool(
            self.of_tenant(spec)
            or self.in_environment(spec)
            or self.command(spec)
            or self.in_file(spec)
        )

    def needs_key_store(self, spec: ProviderSpec) -> bool:
        """Whether only a program or the keyring can tell if there is a key."""
        if spec.name in self._found or self.of_tenant(spec) or self.in_environment(spec):
            return False
        return bool(self.command(spec)) or self._may_be_in_keyring(spec)

    def find(self, spec: ProviderSpec) -> FoundKey | None:
        """The key. May block for long: call it in a worker thread.

        Raises `BadInput` if a source fails that may have the key.
        """
        if key := self.of_tenant(spec) or self.in_environment(spec):
            return key
        with self._lock:
            key = self._found.get(spec.name) or self._search(spec)
            if key:
                self._found[spec.name] = key
                self._learn(key.key)
            return key

    def of_tenant(self, spec: ProviderSpec) -> FoundKey | None:
        key = self._of_tenant.get(spec.name)
        return FoundKey(key, "tenant") if key else None

    def in_environment(self, spec: ProviderSpec) -> FoundKey | None:
        for name in spec.secret_envs:
            if value := self._environ.get(name, "").strip():
                return FoundKey(value, "environment", name)
        return None

    def in_file(self, spec: ProviderSpec) -> FoundKey | None:
        key = self._stored.get(spec.name, "").strip()
        return FoundKey(key, "file") if key else None

    def command(self, spec: ProviderSpec) -> tuple[str, ...]:
        """The program that prints the key; () if none is set."""
        own = self._own.get(spec.name)
        return own.key_command if own else ()

    def find_quietly(self, spec: ProviderSpec) -> FoundKey | None:
        """Like `find`, for many providers in a row: a keyring that failed is not asked again."""
        if self.trouble and not self.command(spec):
            return self.in_environment(spec) or self.in_file(spec)
        return self.find(spec)

    def first_in_keyring(self, specs: Iterable[ProviderSpec]) -> ProviderSpec | None:
        """The first provider with a key in the keyring. A failure ends the search."""
        if keyring.is_installed():
            with suppress(BadInput):
                return next((spec for spec in specs if keyring.get(spec.name)), None)
        return None

    def _may_be_in_keyring(self, spec: ProviderSpec) -> bool:
        return self.uses_key(spec) and keyring.is_installed()

    def _search(self, spec: ProviderSpec) -> FoundKey | None:
        if command := self.command(spec):
            return FoundKey(_run_command(command, self._environ), "key_command")
        if key := self._in_keyring(spec) or self.in_file(spec):
            return key
        if self.trouble and catalog.needs_key(spec, self._environ):
            raise BadInput(
                f"there is no key for {spec.label}: set {spec.key_env}, or choose another "
                f"model{catalog.command_line_hint(spec)}; {self.trouble}"
            )
        return None

    def _in_keyring(self, spec: ProviderSpec) -> FoundKey | None:
        self.trouble = ""
        if not self._may_be_in_keyring(spec):
            return None
        try:
            key = keyring.get(spec.name)
        except BadInput as error:
            self.trouble = str(error)
            return None
        return FoundKey(key, "keyring") if key else None


def key_problem(key: str) -> str:
    """What is wrong with `key`, without quoting it; "" if nothing is."""
    if not key.strip():
        return "it is blank"
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in key):
        return "it contains a control character"
    if key.startswith("export ") or key.partition("=")[0].endswith(("_KEY", "_TOKEN")):
        return "it is a whole `NAME=key`; give only the part after the ="
    if any(letter in _QUOTE_CHARS for letter in key):
        return "it contains a quotation mark"
    if " " in key:
        return "it contains a space"
    if not key.isascii():
        return "it contains a character that no key has"
    return (
        f"it is longer than {_MAX_KEY_CHARS} characters"
        if len(key) > _MAX_KEY_CHARS
        else ""
    )


def _run_command(command: tuple[str, ...], environ: Mapping[str, str]) -> str:
    key = run_key_command(command, environ)
    if problem := key_problem(key):
        raise BadInput(
            f"what the key_command {command[0]!r} prints is not a key: {problem}"
        )
    return key


MAX_COMMAND_SECONDS = 30.0  # seconds; a person may have to unlock something
_MAX_ERROR_CHARS = 1000  # characters of standard error in a message


def run_key_command(
    command: Sequence[str], environ: Mapping[str, str], within: float = MAX_COMMAND_SECONDS
) -> str:
    """The first line that the command prints. Raises `BadInput` that names the program."""
    program = command[0]
    home = environ.get("HOME", "")
    try:
        started = programs.start(
            (_find_program(program, environ), *command[1:]),
            cwd=home if os.path.isdir(home) else "/",
            env=programs.without_loader_variables(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # no terminal for prompts, and a process group to kill
        )
    except OSError as error:
        why = reason_of(error)
        raise BadInput(f"the key_command {program!r} cannot be run: {why}") from error
    with started:
        try:
            output, err = started.communicate(timeout=within)
        except subprocess.TimeoutExpired as error:
            _kill_group(started)
            raise BadInput(
                f"the key_command {program!r} returned no key within {within:g} s"
            ) from error
        except BaseException:  # Ctrl+C
            _kill_group(started)
            raise
    key = (output.decode("utf-8", "replace").splitlines() or [""])[0].strip()
    reason = _failure_text(err.decode("utf-8", "replace"), key)
    if started.returncode:
        raise BadInput(
            f"the key_command {program!r} ended with code {started.returncode}{reason}"
        )
    if not key:
        raise BadInput(f"the key_command {program!r} printed no key{reason}")
    return key


def _find_program(program: str, environ: Mapping[str, str]) -> str:
    try:
        return Programs(environ).require(os.path.expanduser(program))
    except BadInput as error:
        raise BadInput(f"the key_command {program!r} cannot be run: {error}") from error


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """End the program with all that it has started, even if it has ended itself."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _failure_text(text: str, key: str) -> str:
    """The error output on one line, masked because some programs print secrets there."""
    masked = Redactor((key,)).mask(text.encode()).decode("utf-8", "replace")
    masked = masked.replace(key, SECRET_MASK) if key else masked
    line = " ".join(masked.split())[-_MAX_ERROR_CHARS:]
    return f": {line}" if line else ""
