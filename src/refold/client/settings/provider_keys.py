"""The keys of providers: where each comes from; they are checked, stored and removed here.

`refold auth` and the settings of the pages show it. No key leaves this module in full.
`config.api_keys` says which of several keys counts, `config.credentials` and `config.keyring`
store them.
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
# Providers that list models without a key, and where it says whose a key is.
_ASKED_ELSEWHERE = {"openrouter": "/key"}
_PROBE_KEY = "refold-asks-whether-any-key-will-do"
_MIN_MASKABLE_CHARS = 12  # characters of a key whose last ones can be shown


class KeyRow(Struct, frozen=True):
    """A provider and where its key comes from; `source` is "" if it has none."""

    provider: str
    source: str
    variable: str  # in the environment
    ends: str  # the last characters of the key


class KeyChange(Struct, frozen=True):
    """Where a provider's key was stored, or removed from, and what the user should know."""

    provider: str
    places: Sequence[str]
    notices: Sequence[str] = ()


class KeyCheck(Struct, frozen=True):
    """Whether a provider takes a key. `text` says it in words.

    `refused` if it answered no; neither good nor refused if it could not be asked.
    """

    text: str
    good: bool = False
    refused: bool = False


class ProviderKeys:
    """The keys as they are when this is created. Create it in a thread: it reads files."""

    def __init__(self, paths: Paths, environ: Mapping[str, str]) -> None:
        self._file, self._environ = paths.credentials, environ
        self._stored = credentials.read(self._file)
        settings = load(paths.settings, environ, {}).settings
        connections = Connections(settings, paths, environ, self._stored)
        self.specs, self._keys = connections.known, connections.keys

    def spec(self, name: str) -> ProviderSpec:
        """The provider of that name. Raises `BadInput` if there is none, or it takes no key."""
        spec = catalog.find(name, self.specs)
        if not self._keys.uses_key(spec):
            raise BadInput(f"{spec.label} asks for no key")
        return spec

    def needs_key(self, spec: ProviderSpec) -> bool:
        try:
            return catalog.needs_key(spec, self._environ)
        except BadInput:  # its address is not set yet
            return True

    def rows(self, *, optional: bool = False) -> Iterator[KeyRow]:
        """The providers that have a key or need one; with `optional`, all that take one."""
        for spec in self.specs:
            source, key = self._source(spec)
            if source or self.needs_key(spec) or (optional and self._keys.uses_key(spec)):
                ends = last_characters(key.key) if key else ""
                yield KeyRow(spec.name, source, key.variable if key else "", ends)

    @property
    def trouble(self) -> str:
        """The error of the last access to the keyring, or ""."""
        return self._keys.trouble

    def find(self, spec: ProviderSpec) -> FoundKey | None:
        """The key that is used. Raises `BadInput` if a source fails that may have it."""
        return self._keys.find_quietly(spec)

    def store(self, spec: ProviderSpec, key: str, *, in_keyring: bool = False) -> KeyChange:
        """Store a key in one place: the file, or the keyring of the operating system."""
        notices = list[str]()
        if in_keyring:
            keyring.store_key(spec.name, key)
            credentials.remove(self._file, spec.name)  # the keyring is the safer place
        else:
            credentials.store(self._file, spec.name, key)
            _remove_from_keyring(spec.name, notices)  # it would go before the file
            notices += filter(None, (credentials.exposure_warning(self._file),))
        notices += (f"{source} takes precedence" for source in self._earlier_sources(spec))
        place = "the keyring" if in_keyring else str(self._file)
        return KeyChange(spec.name, (place,), notices)

    def remove(self, name: str) -> KeyChange:
        """Remove a stored key from every place. Raises `BadInput` for an unknown provider."""
        specs = [spec for spec in self.specs if spec.name == name]
        # A provider whose key is kept need not be in the settings any more.
        if name not in self._stored:
            specs = [self.spec(name)]
            name = specs[0].name
        notices = list[str]()
        places = [str(self._file)] if credentials.remove(self._file, name) else []
        if _remove_from_keyring(name, notices):
            places.append("the keyring")
        for spec in specs:
            notices += (
                f"{source} is still there" for source in self._earlier_sources(spec)
            )
        return KeyChange(name, places, notices)

    async def check(self, spec: ProviderSpec, key: FoundKey | None) -> KeyCheck:
        """Ask the provider whether it takes the key."""
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
        """Ask the provider whether it takes this key, which is not stored yet.

        Raises `BadInput` for a text that cannot be a key, or the key of another provider, and sends
        it to no one then.
        """
        if problem := key_problem(key):
            raise BadInput(f"this is not a key: {problem}; nothing was saved")
        if (maker := maker_of(key)) not in ("", spec.name):
            raise BadInput(f"this is a key for {maker}: it was not sent, and not saved")
        return await self._check(spec, key, f"the key {last_characters(key)}")

    async def _check(self, spec: ProviderSpec, key: str, subject: str) -> KeyCheck:
        try:
            await try_key(spec, self._environ, key)
        except Refused as error:
            return KeyCheck(f"{subject} was not accepted: {error}", refused=True)
        except (ProviderError, BadInput) as error:
            return KeyCheck(f"{subject} was not tried: {error}")
        if spec.name in _ASKED_ELSEWHERE:
            return KeyCheck(f"{subject} is accepted", good=True)
        try:
            await try_key(spec, self._environ, _PROBE_KEY)
        except ProviderError:
            return KeyCheck(f"{subject} is accepted", good=True)
        unverified = f"{spec.label} lists its models for any key"
        return KeyCheck(f"{unverified}, so {subject} was not verified", good=True)

    def _earlier_sources(self, spec: ProviderSpec) -> Iterator[str]:
        """The sources that are tried before those that refold itself stores keys in."""
        if key := self._keys.in_environment(spec):
            yield f"the key in {key.variable} (environment)"
        if self._keys.command(spec):
            yield "the key_command in the settings"

    def _source(self, spec: ProviderSpec) -> tuple[str, FoundKey | None]:
        """Where the key comes from. A `key_command` is not run only to be listed."""
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
    if path := _ASKED_ELSEWHERE.get(spec.name):
        http = catalog.server(spec, environ, key=key, idle=20, connecting=5)
        try:
            await http.get(path)
        finally:
            await http.aclose()
    else:
        await list_models(spec, environ, key=key)


def last_characters(key: str) -> str:
    return f"…{key[-4:]}" if len(key) >= _MIN_MASKABLE_CHARS else "…"


def _remove_from_keyring(provider: str, notices: list[str]) -> bool:
    if not keyring.is_installed():
        return False
    try:
        return keyring.remove(provider)
    except BadInput as error:
        notices.append(str(error))
        return False
