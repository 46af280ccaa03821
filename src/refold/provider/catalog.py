"""The built-in providers as data, and functions that connect to them.

A provider has a base URL, environment variables for its key and address, and a wire. To add
one, add a `ProviderSpec` here and a line to `entry_points.txt`. A wire and its HTTP client are
imported when they are first needed.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from refold.errors import BadInput
from refold.plugins import own_plugins
from refold.provider.known_models import window
from refold.provider.port import Provider
from refold.provider.spec import (
    PROVIDER_GROUP,
    ProviderSpec,
    Quirks,
    find_by_name,
    provider_of,
    unknown_provider_error,
)

if TYPE_CHECKING:
    from refold.provider.api_client import Http


_KEY_HEADERS = {"anthropic": "x-api-key", "gemini": "x-goog-api-key"}
CHAT_WIRE = "openai-chat"

ANTHROPIC_SPEC = ProviderSpec(
    "anthropic",
    "anthropic",
    "Anthropic",
    "https://api.anthropic.com",
    url_env="ANTHROPIC_BASE_URL",
    key_env="ANTHROPIC_API_KEY",
    bearer_env="ANTHROPIC_AUTH_TOKEN",
    model="claude-sonnet-5-5",
    hosts_mcp=True,
    aliases=("claude", "claude-api"),
    program="claude-code",
)
OPENAI_SPEC = ProviderSpec(
    "openai",
    "openai-responses",
    "OpenAI",
    "https://api.openai.com/v1",
    url_env="OPENAI_BASE_URL",
    key_env="OPENAI_API_KEY",
    model="gpt-6.1-sol",
    hosts_mcp=True,
    program="codex-cli",
)
GEMINI_SPEC = ProviderSpec(
    "gemini",
    "gemini",
    "Gemini",
    "https://generativelanguage.googleapis.com",
    url_env="GOOGLE_GEMINI_BASE_URL",
    key_env="GEMINI_API_KEY",
    key_too=("GOOGLE_API_KEY",),
    model="gemini-3.8-flash",
    aliases=("google",),
    program="gemini-cli",
)
OPENAI_CHAT_SPEC = ProviderSpec(
    "openai-chat",
    "openai-chat",
    "OpenAI",
    "https://api.openai.com/v1",
    url_env="OPENAI_BASE_URL",
    key_env="OPENAI_API_KEY",
    model="gpt-6.1-sol",
    quirks=Quirks(
        output_limit="max_completion_tokens",
        schema_beside_tools=True,
        cache_key=True,
    ),
)
OPENROUTER_SPEC = ProviderSpec(
    "openrouter",
    CHAT_WIRE,
    "OpenRouter",
    "https://openrouter.ai/api/v1",
    url_env="OPENROUTER_BASE_URL",
    key_env="OPENROUTER_API_KEY",
    model="openrouter/auto",
    quirks=Quirks(
        effort_in="reasoning",
        schema_beside_tools=True,
        costs=True,
        details="openrouter",
    ),
)
GROQ_SPEC = ProviderSpec(
    "groq",
    CHAT_WIRE,
    "Groq",
    "https://api.groq.com/openai/v1",
    url_env="GROQ_BASE_URL",
    key_env="GROQ_API_KEY",
    model="openai/gpt-oss-120b",
    quirks=Quirks(output_limit="max_completion_tokens"),
)
MISTRAL_SPEC = ProviderSpec(
    "mistral",
    CHAT_WIRE,
    "Mistral",
    "https://api.mistral.ai/v1",
    url_env="MISTRAL_BASE_URL",
    key_env="MISTRAL_API_KEY",
    model="mistral-medium-latest",
    quirks=Quirks(short_ids=True, bridged=True),
)
DEEPSEEK_SPEC = ProviderSpec(
    "deepseek",
    CHAT_WIRE,
    "DeepSeek",
    "https://api.deepseek.com",
    url_env="DEEPSEEK_BASE_URL",
    key_env="DEEPSEEK_API_KEY",
    model="deepseek-flash",
    quirks=Quirks(thinking_back="reasoning_content"),
)
XAI_SPEC = ProviderSpec(
    "xai",
    CHAT_WIRE,
    "xAI",
    "https://api.x.ai/v1",
    url_env="XAI_BASE_URL",
    key_env="XAI_API_KEY",
    model="grok-4.7",
    quirks=Quirks(output_limit="max_completion_tokens", schema_beside_tools=True),
)
AZURE_SPEC = ProviderSpec(
    "azure",
    CHAT_WIRE,
    "Azure OpenAI",
    "",
    url_env="AZURE_OPENAI_BASE_URL",
    url_too=(("AZURE_OPENAI_ENDPOINT", "/openai/v1"),),
    key_env="AZURE_OPENAI_API_KEY",
    key_header="api-key",
    quirks=Quirks(
        output_limit="max_completion_tokens",
        schema_beside_tools=True,
        cache_key=True,
    ),
)
VLLM_SPEC = ProviderSpec(
    "vllm",
    CHAT_WIRE,
    "vLLM",
    "http://127.0.0.1:8000/v1",
    url_env="VLLM_BASE_URL",
    key_env="VLLM_API_KEY",
    keyless=True,
    advice="start it with `vllm serve MODEL`",
)
LMSTUDIO_SPEC = ProviderSpec(
    "lmstudio",
    CHAT_WIRE,
    "LM Studio",
    "http://127.0.0.1:1234/v1",
    url_env="LMSTUDIO_BASE_URL",
    key_env="LM_API_TOKEN",
    keyless=True,
    advice="start it with `lms server start`",
)
LLAMA_CPP_SPEC = ProviderSpec(
    "llama-cpp",
    CHAT_WIRE,
    "llama.cpp",
    "http://127.0.0.1:8080/v1",
    url_env="LLAMA_CPP_BASE_URL",
    key_env="LLAMA_API_KEY",
    keyless=True,
    aliases=("llama.cpp", "llamacpp"),
    advice="start it with `llama-server -m MODEL.gguf --jinja`",
)
OLLAMA_SPEC = ProviderSpec(
    "ollama",
    "ollama",
    "Ollama",
    "http://127.0.0.1:11434",
    url_env="OLLAMA_HOST",
    aliases=("ollama-api",),
    advice="start it with `ollama serve`",
)


class ConnectedProvider(Provider, Protocol):
    """A provider that holds open connections, which `aclose` closes."""

    async def aclose(self) -> None: ...


def providers() -> tuple[ProviderSpec, ...]:
    """Return all built-in providers."""
    entries = map(provider_of, own_plugins(PROVIDER_GROUP))
    return tuple(entry for entry in entries if isinstance(entry, ProviderSpec))


def parse_model(
    text: str, specs: tuple[ProviderSpec, ...] = ()
) -> tuple[ProviderSpec, str]:
    """Split `provider/model` into the provider and the model's name, which may contain slashes.

    If `text` names no model, the provider's default model is returned. Raises `BadInput`.
    """
    name, _, model = text.partition("/")
    spec = find(name, specs)
    if not model and not spec.model:
        raise BadInput(f"{text!r} names no model: write {spec.name}/MODEL")
    return spec, model or spec.model


def find(name: str, specs: tuple[ProviderSpec, ...] = ()) -> ProviderSpec:
    """Return the provider with this name. Raises `BadInput` that suggests similar names."""
    specs = specs or providers()
    match = find_by_name(name.lower(), specs)
    if match is not None:
        return match
    known_names = list[str]()
    for spec in specs:
        known_names += (spec.name, *spec.aliases)
    raise unknown_provider_error(name, known_names)


def window_of(spec: ProviderSpec, model: str) -> int:
    """Return the model's known context window in tokens.

    Return 0 if it is unknown, and for every model of Ollama.
    """
    return 0 if spec.wire == "ollama" else window(model)


def connect(
    spec: ProviderSpec,
    environ: Mapping[str, str],
    *,
    key: str = "",
    idle: float = 120.0,
    connecting: float = 10.0,
    window: int = 0,
) -> ConnectedProvider:
    """Connect to a provider. `key` takes precedence over the key in the environment.

    `connecting` and `idle` are time limits in seconds. `window` is the context window in
    tokens, for servers that must be sent it (Ollama). Raises `BadInput` if a key is needed but
    missing.
    """
    http = server(spec, environ, key=key, idle=idle, connecting=connecting)
    match spec.wire:
        case "anthropic":
            from refold.provider.anthropic import Anthropic

            return Anthropic(http, _own_wire(spec), hosts_mcp=spec.hosts_mcp)
        case "openai-responses":
            from refold.provider.responses import OpenAIResponses

            return OpenAIResponses(http, _own_wire(spec), hosts_mcp=spec.hosts_mcp)
        case "openai-chat":
            from refold.provider.openai_chat import OpenAIChat

            return OpenAIChat(http, _quirks(spec, environ))
        case "gemini":
            from refold.provider.gemini import Gemini

            return Gemini(http, _own_wire(spec))
        case "ollama":
            from refold.provider.ollama import Ollama

            return Ollama(http, window=window)


def server(
    spec: ProviderSpec,
    environ: Mapping[str, str],
    *,
    key: str = "",
    idle: float = 120.0,
    connecting: float = 10.0,
) -> "Http":
    """Return a client for the provider's server, which sends its key.

    Raises `BadInput` if a key is needed but missing, or if the address is missing or invalid.
    """
    from refold.provider.api_client import Http
    from refold.provider.error_mapping import Peer
    from refold.provider.http import Bounds

    base_url = address(spec, environ)
    peer = Peer(
        spec.label,
        base_url,
        name=spec.name,
        # an unset variable must not be blamed
        url_env=spec.url_env if spec.url_env in environ else "",
        key_env=spec.key_env,
        advice=spec.advice,
    )
    headers, secret = _credentials(spec, environ, key)
    return Http(
        peer,
        headers,
        secret=secret,
        bounds=Bounds(connect=connecting, idle=idle),
        environ=environ,
    )


def address(spec: ProviderSpec, environ: Mapping[str, str]) -> str:
    """Return the base URL of the provider: from the environment, or else from its spec.

    Raises `BadInput` if there is none, or if it is invalid.
    """
    url = environ.get(spec.url_env, "").strip() if spec.url_env else ""
    setting = spec.url_env or f"[providers.{spec.name}] base_url"
    for name, path in spec.url_too:  # variables of other programs, whose URLs lack the path
        value = environ.get(name, "").strip().rstrip("/")
        if value and not url:
            url = value.removesuffix(path) + path
    if not url and not spec.base_url:
        raise BadInput(f"{spec.label} has no default address: set {spec.url_env} to yours")
    _check_address(url or spec.base_url, setting)
    if not url:
        return spec.base_url
    if "://" in url:
        return url.rstrip("/")
    if spec.wire != "ollama":
        raise BadInput(
            f"{setting} is not an address: {url!r}; write it with http:// or https://"
        )
    # OLLAMA_HOST often contains only a host, host:port or :port.
    host, _, port = url.rpartition(":") if ":" in url else (url, "", "")
    if host in ("", "0.0.0.0"):  # an address to listen on, not to connect to
        host = "127.0.0.1"
    _, _, default_port = spec.base_url.rpartition(":")
    return f"http://{host}:{port or default_port}".rstrip("/")


def _check_address(url: str, setting: str) -> None:
    """Raise `BadInput` if a URL contains a password, because addresses are shown and recorded.

    `setting` names the variable with the URL.
    """
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise BadInput(
            f"{setting} holds a user name or a password before the @: leave them out, "
            "and give the key in its variable"
        )


def needs_key(spec: ProviderSpec, environ: Mapping[str, str]) -> bool:
    """Return True if requests need a key. Raises `BadInput` if the address is invalid."""
    if spec.keyless or not spec.key_env:
        return False
    return not has_custom_address(spec, environ)


def _credentials(
    spec: ProviderSpec, environ: Mapping[str, str], key: str
) -> tuple[dict[str, str], str]:
    """Return the headers that authenticate a request, and the secret in them, or "".

    Raises `BadInput` if a key is needed but missing.
    """
    keys = (environ.get(name, "").strip() for name in (spec.key_env, *spec.key_too))
    key = key.strip() or next(filter(None, keys), "")
    bearer = environ.get(spec.bearer_env, "").strip()
    if needs_key(spec, environ) and not (key or bearer):
        raise BadInput(
            f"there is no key for {spec.label}: set {spec.key_env}, run "
            f"`refold auth set {spec.name}`, or choose another model{command_line_hint(spec)}"
        )
    headers: dict[str, str] = {}
    if spec.wire == "anthropic":
        from refold.provider.anthropic import API_VERSION

        headers["anthropic-version"] = API_VERSION
    header = spec.key_header or _KEY_HEADERS.get(spec.wire, "")
    if key and header:
        return {**headers, header: key}, key
    if token := key or bearer:
        return {**headers, "authorization": f"Bearer {token}"}, token
    return headers, ""


def command_line_hint(spec: ProviderSpec) -> str:
    """Return a hint for an error message that names the maker's own command line, or ""."""
    return f", such as {spec.program}, its command line" if spec.program else ""


def has_custom_address(spec: ProviderSpec, environ: Mapping[str, str]) -> bool:
    """Return True if an environment variable replaces the default address of the provider."""
    return bool(spec.base_url) and address(spec, environ) != spec.base_url


def _own_wire(spec: ProviderSpec) -> str:
    """Return the name under which to store data that only this provider can read.

    For the provider that the wire was made for, it is the name of the wire. For any other
    provider, the provider's name is added, as in `anthropic@gateway`.
    """
    maker = {"openai-responses": "openai"}.get(spec.wire, spec.wire)
    return spec.wire if spec.name == maker else f"{spec.wire}@{spec.name}"


def _quirks(spec: ProviderSpec, environ: Mapping[str, str]) -> Quirks:
    """Return the provider's quirks.

    If the address is custom, leave out the quirks that another server may lack.
    """
    if has_custom_address(spec, environ):
        plain = Quirks()
        return replace(
            spec.quirks,
            output_limit=plain.output_limit,
            schema_beside_tools=plain.schema_beside_tools,
            cache_key=plain.cache_key,
        )
    return spec.quirks
