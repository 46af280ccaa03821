"""Converts the configuration of another agent loop, `uwsal.json` or `coro.json`, to an agent.

These files have one flat table, which also contains the API key. `variant` checks the keys that
have the same name and meaning in refold. A key without an equivalent is an error, which says
what to use instead.
"""

from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import urlsplit

from refold.declared.variant import Source
from refold.provider.command.backends import full_name

LOOP_FILES = ("uwsal.json", "coro.json")
_RENAMED_KEYS = {
    "max_chars": "max_context_chars", "max_words": "max_context_words",
    "approval_mode": "approval", "protocol": "backend",
}  # fmt: skip
_PROTOCOL_BACKENDS = {"openai_compat": "openai-chat", "openai": "openai-chat"}
_SERVER_BACKENDS = {
    "openrouter.ai": "openrouter", "api.anthropic.com": "anthropic",
    "api.openai.com": "openai-chat", "api.groq.com": "groq", "api.x.ai": "xai",
    "api.deepseek.com": "deepseek", "api.mistral.ai": "mistral",
}  # fmt: skip
_UNSUPPORTED_KEYS = {
    "mcp_servers": "put them into .mcp.json",
    "token_budget": "set limits.dollars",
    "security_profile": "set security_profile in your settings",
    "tool_cache_ttl": "set result_cache = true in your settings",
}
# In these files zero means "no limit". Here that is a missing key.
_LIMIT_KEYS = ("max_chars", "max_words", "max_iterations", "token_budget", "tool_cache_ttl")


def agents_table(document: Mapping[str, Any], name: str, source: Source) -> dict[str, Any]:
    """Return the settings of another agent loop in the form of agents.toml. Raises `BadInput`.

    `document` is the whole file. The result declares one agent, `name`, which is the default.
    """
    settings = {
        key: value
        for key, value in document.items()
        if key not in _LIMIT_KEYS or value != 0
    }
    api_keys = cast("dict[str, Any]", settings.pop("keys", None) or {})
    for setting, advice in _UNSUPPORTED_KEYS.items():
        if settings.get(setting):
            raise source.definition_error(
                ("agents", name, setting), f"it is not read from here: {advice}"
            )
        settings.pop(setting, None)
    table = {_RENAMED_KEYS.get(key, key): value for key, value in settings.items()}
    backend = str(table.get("backend") or "")
    if not backend:
        backend = _backend_of_server(str(table.get("base_url") or ""))
    if "protocol" in settings:
        table["backend"] = _PROTOCOL_BACKENDS.get(backend, backend)
    else:
        table["backend"] = backend
    own_key = table.pop("api_key", "")
    api_key = api_keys.get(backend) or api_keys.get(full_name(backend)) or own_key
    if isinstance(api_key, str) and api_key.startswith("$"):
        table["api_key_env"] = api_key.strip("${}")
    elif api_key:
        table["api_key"] = api_key
    return {"default": name, "agents": {name: table}}


def _backend_of_server(base_url: str) -> str:
    """Return the backend for the host of this URL; "openai-chat" for an unknown host."""
    host = urlsplit(base_url).hostname or ""
    return _SERVER_BACKENDS.get(host, "openai-chat")
