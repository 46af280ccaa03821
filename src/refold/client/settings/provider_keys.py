"""The keys of providers: finds the source of each, and checks, stores and removes keys.

`refold auth` and the settings pages use it. Keys leave this module only in masked form.
`config.api_keys` decides which of several keys is used; `config.credentials` and
`config.keyring` store them.
"""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from refold.app.model_connections import Connections
from refold.config import credentials, keyring
from refold.config.api_keys import FoundKey, key_problem
from refold.config.load import load
from refold.config.paths import Paths
from refold.errors import BadInput, ProviderError, Refused
from refold.provider import catalog
from refold.provider.model_list import list_models
from refold.provider.spec import ProviderSpec
from refold.values.key_shapes import maker_of

KEY_PAGES = {
    "anthropic": "https://platform.claude.com/settings/keys",
    "openai": "https://platform.openai.com/api-keys",
    "gemini": "https://aistudio.google.com/apikey",
    "openrouter": "https://openrouter.ai/settings/keys",
    "groq": "https://console.groq.com/keys",
    "xai": "https://console.x.ai",
    "mistral": "https://console.mistral.ai/api-keys",
    "deepseek": "https://platform.deepseek.com/api_keys",
}
# The path at which a key is checked, for providers that list their models without a key.
_KEY_CHECK_PATHS = {"openrouter": "/key"}
_PROBE_KEY = "refold-asks-whether-any-key-will-do"
_MIN_MASKABLE_CHARS = 12  # characters of a key; of a shorter one, not even the end is shown


class KeyRow(Struct, frozen=True):
    """A provider and the source of its key; `source` is "" if no key is known."""

    provider: str
    source: str
    variable: str  # environment variable
    ends: str  # the last characters of the key


class KeyChange(Struct, frozen=True):
    """Where a provider's key was stored or removed, with a notice for the user."""

    provider: str
    places: Sequence[str]
    notices: Sequence[str] = ()


class KeyCheck(Struct, frozen=True):
    """Whether a provider accepts a key. `text` says it in a sentence.

    `good` means that the provider accepted the key, and `refused` that the provider refused
    the key. If neither is set, the key could not be tried.
    """

    text: str
    good: bool = False
    refused: bool = False


class ProviderKeys:
    """The keys of providers, as they are when this object is created.

    Create it in a thread: it reads files.
    """

    def __init__(self, paths: Paths, environ: Mapping[str, str]) -> None:
        self._file = paths.credentials
        self._environ = environ
        self._stored = credentials.read(self._file)
        settings = load(paths.settings, environ, {}).settings
        connections = Connections(settings, paths, environ, self._stored)
        self.specs = connections.known
        self._keys = connections.keys

    def spec(self, name: str) -> ProviderSpec:
        """Return the provider called `name`. Raises `BadInput` if it is unknown, or takes
        no key.
        """
        spec = catalog.find(name, self.specs)
        if not self._keys.uses_key(spec):
            raise BadInput(f"{spec.label} asks for no key")
        return spec

    def needs_key(self, spec: ProviderSpec) -> bool:
        """Return whether the provider needs a key; True also if its address is not set."""
        try:
            return catalog.needs_key(spec, self._environ)
        except BadInput:  # its address is not set
            return True

    def rows(self, *, optional: bool = False) -> Iterator[KeyRow]:
        """Yield the providers that have a key or need one; with `optional`, all that can
        have one.
        """
        for spec in self.specs:
            source, key = self._source(spec)
            may_have_key = optional and self._keys.uses_key(spec)
            if not (source or self.needs_key(spec) or may_have_key):
                continue
            if key is None:
                yield KeyRow(spec.name, source, variable="", ends="")
            else:
                yield KeyRow(spec.name, source, key.variable, last_characters(key.key))

    @property
    def trouble(self) -> str:
        """The error of the last access to the keyring; "" if it succeeded."""
        return self._keys.trouble

    def find(self, spec: ProviderSpec) -> FoundKey | None:
        """Return the key that requests to this provider use; None if no source has one.

        Raises `BadInput` if a source that may have the key fails.
        """
        return self._keys.find_quietly(spec)

    def store(self, spec: ProviderSpec, key: str, *, in_keyring: bool = False) -> KeyChange:
        """Store a key: in refold's file, or with `in_keyring` in the keyring of the
        operating system.
        """
        notices = list[str]()
        if in_keyring:
            keyring.store_key(spec.name, key)
            # Only the keyring, which is safer, has the key now.
            credentials.remove(self._file, spec.name)
        else:
            credentials.store(self._file, spec.name, key)
            # A key in the keyring would be used before the one in the file.
            _remove_from_keyring(spec.name, notices)
            if warning := credentials.exposure_warning(self._file):
                notices.append(warning)
        notices += (f"{source} takes precedence" for source in self._earlier_sources(spec))
        place = "the keyring" if in_keyring else str(self._file)
        return KeyChange(spec.name, (place,), notices)

    def remove(self, name: str) -> KeyChange:
        """Remove a stored key from every place. Raises `BadInput` for an unknown provider.

        The notices name the sources that still have a key, and say why the keyring failed.
        """
        if name in self._stored:
            # The settings may no longer have this provider: then there is no spec.
            specs = [spec for spec in self.specs if spec.name == name]
        else:
            spec = self.spec(name)
            name = spec.name  # `name` may be another name of the provider
            specs = [spec]
        notices = list[str]()
        places = list[str]()
        if credentials.remove(self._file, name):
            places.append(str(self._file))
        if _remove_from_keyring(name, notices):
            places.append("the keyring")
        for spec in specs:
            for source in self._earlier_sources(spec):
                notices.append(f"{source} is still there")
        return KeyChange(name, places, notices)

    async def check(self, spec: ProviderSpec, key: FoundKey | None) -> KeyCheck:
        """Ask the provider whether it accepts the key."""
        if key is None:
            if self.needs_key(spec):
                return KeyCheck(
                    f"there is no key (refold auth set {spec.name} stores one)",
                    refused=True,
                )
            return KeyCheck("there is no key, and none is needed", good=True)
        origin = f"{key.source} {key.variable}".strip()
        return await self._check(
            spec, key.text_for_wire, f"the key {last_characters(key.key)} ({origin})"
        )

    async def check_new(self, spec: ProviderSpec, key: str) -> KeyCheck:
        """Ask the provider whether it accepts `key`, which is not stored yet.

        A text that cannot be a key, or is the key of another provider, is not sent:
        `BadInput` is raised.
        """
        if problem := key_problem(key):
            raise BadInput(f"this is not a key: {problem}; nothing was saved")
        if (maker := maker_of(key)) not in ("", spec.name):
            raise BadInput(f"this is a key for {maker}: it was not sent, and not saved")
        return await self._check(spec, key, f"the key {last_characters(key)}")

    async def _check(self, spec: ProviderSpec, key: str, subject: str) -> KeyCheck:
        """Send a request with the key, and return whether it was accepted.

        `subject` names the key in sentences. Some providers list their models for any key.
        So a wrong key is sent, too: if that is accepted, the key was not verified.
        """
        try:
            await try_key(spec, self._environ, key)
        except Refused as error:
            return KeyCheck(f"{subject} was not accepted: {error}", refused=True)
        except (ProviderError, BadInput) as error:
            return KeyCheck(f"{subject} was not tried: {error}")
        if spec.name in _KEY_CHECK_PATHS:
            return KeyCheck(f"{subject} is accepted", good=True)
        try:
            await try_key(spec, self._environ, _PROBE_KEY)
        except ProviderError:
            return KeyCheck(f"{subject} is accepted", good=True)
        unverified = f"{spec.label} lists its models for any key"
        return KeyCheck(f"{unverified}, so {subject} was not verified", good=True)

    def _earlier_sources(self, spec: ProviderSpec) -> Iterator[str]:
        """Yield the sources of keys that have priority over the places in which refold
        stores keys.
        """
        if key := self._keys.in_environment(spec):
            yield f"the key in {key.variable} (environment)"
        if self._keys.command(spec):
            yield "the key_command in the settings"

    def _source(self, spec: ProviderSpec) -> tuple[str, FoundKey | None]:
        """Return the name of the key's source, and the key; ("", None) if no source has one.

        If a `key_command` supplies the key, None takes its place, because a list of keys
        must not run the command.
        """
        if not self._keys.in_environment(spec) and self._keys.command(spec):
            return "key_command", None
        try:
            key = self._keys.find_quietly(spec)
        except BadInput:
            return "", None
        return (key.source if key else ""), key


async def try_key(spec: ProviderSpec, environ: Mapping[str, str], key: str) -> None:
    """Send one request that costs nothing. Raises `Refused` if the provider refuses the
    key.
    """
    if path := _KEY_CHECK_PATHS.get(spec.name):
        http = catalog.server(spec, environ, key=key, idle=20, connecting=5)
        try:
            await http.get(path)
        finally:
            await http.aclose()
    else:
        await list_models(spec, environ, key=key)


def last_characters(key: str) -> str:
    """Return "…" and the last characters of a key, by which the user recognizes it.

    For a short key, return only "…".
    """
    return f"…{key[-4:]}" if len(key) >= _MIN_MASKABLE_CHARS else "…"


def _remove_from_keyring(provider: str, notices: list[str]) -> bool:
    """Remove a key from the keyring; return whether it had one. An error is a notice."""
    if not keyring.is_installed():
        return False
    try:
        return keyring.remove(provider)
    except BadInput as error:
        notices.append(str(error))
        return False
