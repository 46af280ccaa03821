"""Finds the API key of a provider.

The sources are tried in this order: on a worker, the key of the tenant; environment variables;
the program in the setting `key_command`; the keyring of the operating system; the file
`credentials.toml`. The program and the keyring may be slow or ask the user, so they are used
only when a key is needed, and once for each key. `credentials` and `keyring` store keys.
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
    """A key with which the model calls of a tenant are paid.

    `base_url` is the address of the provider or of a gateway; "" means the provider's usual
    address.
    """

    key: str
    base_url: str = ""

    def __repr__(self) -> str:
        return "TenantKey(…)"


class FoundKey(Struct, frozen=True):
    """The API key of a provider, and the source in which it was found."""

    key: str
    source: Source
    variable: str = ""  # environment variable

    @property
    def text_for_wire(self) -> str:
        """The key to pass to a client; "" if the client reads it from the environment."""
        return "" if self.source == "environment" else self.key

    def __repr__(self) -> str:
        return f"FoundKey({self.source})"


class Keys:
    """Finds the keys of providers.

    `find` calls `learn` with each key that it reads from a program, the keyring or the file, so
    that the key is masked in all output.
    """

    def __init__(
        self,
        providers: Mapping[str, OwnProvider],
        environ: Mapping[str, str],
        stored_keys: Mapping[str, str],
        learn: Callable[[str], None],
        tenant_keys: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._own, self._environ, self._stored = providers, environ, stored_keys
        self._tenant_keys = tenant_keys
        self._learn = learn
        self._lock = Lock()
        self._found: dict[str, FoundKey] = {}  # by provider
        self.trouble = ""  # the error of the last access to the keyring

    def uses_key(self, spec: ProviderSpec) -> bool:
        """Whether calls of this provider may need a key."""
        return bool(spec.key_env) or spec.name in self._own or spec.name in self._stored

    def has_known_key(self, spec: ProviderSpec) -> bool:
        """Whether a source other than the keyring has a key, or a `key_command` is set.

        No program is run, and the keyring is not used.
        """
        return bool(
            self.of_tenant(spec)
            or self.in_environment(spec)
            or self.command(spec)
            or self.in_file(spec)
        )

    def needs_key_store(self, spec: ProviderSpec) -> bool:
        """Whether only the `key_command` or the keyring can tell if a key exists."""
        if spec.name in self._found or self.of_tenant(spec) or self.in_environment(spec):
            return False
        return bool(self.command(spec)) or self._may_be_in_keyring(spec)

    def find(self, spec: ProviderSpec) -> FoundKey | None:
        """Return the key, or None if no source has a key. Raises `BadInput` if a source fails.

        A program or the keyring may take long, so call this in a worker thread.
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
        key = self._tenant_keys.get(spec.name)
        return FoundKey(key, "tenant") if key else None

    def in_environment(self, spec: ProviderSpec) -> FoundKey | None:
        """Return the key in the first set variable of this provider, or None."""
        for name in spec.secret_envs:
            if value := self._environ.get(name, "").strip():
                return FoundKey(value, "environment", name)
        return None

    def in_file(self, spec: ProviderSpec) -> FoundKey | None:
        key = self._stored.get(spec.name, "").strip()
        return FoundKey(key, "file") if key else None

    def command(self, spec: ProviderSpec) -> tuple[str, ...]:
        """Return the `key_command` of this provider; () if none is set."""
        own = self._own.get(spec.name)
        return own.key_command if own else ()

    def find_quietly(self, spec: ProviderSpec) -> FoundKey | None:
        """Return the key like `find`, but do not use the keyring again after it has failed.

        Call this instead of `find` if keys of many providers are needed.
        """
        if self.trouble and not self.command(spec):
            return (
                self.of_tenant(spec)
                or self.in_environment(spec)
                or self._found.get(spec.name)
                or self.in_file(spec)
            )
        return self.find(spec)

    def first_in_keyring(self, specs: Iterable[ProviderSpec]) -> ProviderSpec | None:
        """Return the first provider with a key in the keyring; None if there is none.

        The search ends when the keyring fails.
        """
        if keyring.is_installed():
            with suppress(BadInput):
                return next((spec for spec in specs if keyring.get(spec.name)), None)
        return None

    def _may_be_in_keyring(self, spec: ProviderSpec) -> bool:
        return self.uses_key(spec) and keyring.is_installed()

    def _search(self, spec: ProviderSpec) -> FoundKey | None:
        """Return the key from the `key_command`, the keyring or the file, in this order.

        Return None if none of them has a key.
        """
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
        """Return the key in the keyring, or None.

        If the keyring fails, set `trouble` to the reason.
        """
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
    """Return what is wrong with `key`, without quoting it; "" if nothing is wrong."""
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
    if len(key) > _MAX_KEY_CHARS:
        return f"it is longer than {_MAX_KEY_CHARS} characters"
    return ""


def _run_command(command: tuple[str, ...], environ: Mapping[str, str]) -> str:
    """Return the key that a `key_command` prints. Raises `BadInput` if it is not a key."""
    key = run_key_command(command, environ)
    if problem := key_problem(key):
        raise BadInput(
            f"what the key_command {command[0]!r} prints is not a key: {problem}"
        )
    return key


MAX_COMMAND_SECONDS = 30.0  # a person may have to unlock something
_MAX_ERROR_CHARS = 1000  # of standard error in a message


def run_key_command(
    command: Sequence[str], environ: Mapping[str, str], within: float = MAX_COMMAND_SECONDS
) -> str:
    """Run a `key_command`, and return the first line that it prints: the key.

    Raises `BadInput` if the command fails, prints no key, or takes longer than `within`
    seconds.
    """
    program = command[0]
    home = environ.get("HOME", "")
    try:
        process = programs.start(
            (_find_program(program, environ), *command[1:]),
            cwd=home if os.path.isdir(home) else "/",
            env=programs.without_loader_variables(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # No terminal for prompts, and a process group that can be killed.
            start_new_session=True,
        )
    except OSError as error:
        why = reason_of(error)
        raise BadInput(f"the key_command {program!r} cannot be run: {why}") from error
    with process:
        try:
            output, errors = process.communicate(timeout=within)
        except subprocess.TimeoutExpired as error:
            _kill_group(process)
            raise BadInput(
                f"the key_command {program!r} returned no key within {within:g} s"
            ) from error
        except BaseException:  # also on Ctrl+C
            _kill_group(process)
            raise
    lines = output.decode("utf-8", "replace").splitlines()
    key = lines[0].strip() if lines else ""
    reason = _failure_text(errors.decode("utf-8", "replace"), key)
    if process.returncode:
        raise BadInput(
            f"the key_command {program!r} ended with code {process.returncode}{reason}"
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
    """Kill the programs in the process group of `process`, even if `process` has exited."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _failure_text(text: str, key: str) -> str:
    """Return ": " and the error output `text` on one line; "" if `text` is blank.

    Secrets and `key` are masked in the output.
    """
    masked = Redactor((key,)).mask(text.encode()).decode("utf-8", "replace")
    if key:
        masked = masked.replace(key, SECRET_MASK)
    line = " ".join(masked.split())[-_MAX_ERROR_CHARS:]
    return f": {line}" if line else ""
