"""The configuration of another agent loop as one declared agent: `uwsal.json` and `coro.json`.

These files have one flat table, with the key in it. `variant` checks the keys that are the same
here; a key without an equivalent is an error that says what to use instead.
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
# Zero means "no limit" there, and so does a missing key here.
_NO_LIMIT = ("max_chars", "max_words", "max_iterations", "token_budget", "tool_cache_ttl")


def agents_table(document: Mapping[str, Any], name: str, source: Source) -> dict[str, Any]:
    """Return the document as the table of a file of agents. Raises `BadInput`."""
    settings = {k: v for k, v in document.items() if not (k in _NO_LIMIT and v == 0)}
    keys = cast("dict[str, Any]", settings.pop("keys", None) or {})
    for key, advice in _UNSUPPORTED_KEYS.items():
        if settings.get(key):
            raise source.definition_error(
                ("agents", name, key), f"it is not read from here: {advice}"
            )
        settings.pop(key, None)
    table = {_RENAMED_KEYS.get(key, key): value for key, value in settings.items()}
    backend = str(
        table.get("backend") or _backend_of_server(str(table.get("base_url") or ""))
    )
    table["backend"] = (
        _PROTOCOL_BACKENDS.get(backend, backend) if "protocol" in settings else backend
    )
    key = keys.get(backend) or keys.get(full_name(backend)) or table.pop("api_key", "")
    table.pop("api_key", None)
    if isinstance(key, str) and key.startswith("$"):
        table["api_key_env"] = key.strip("${}")
    elif key:
        table["api_key"] = key
    return {"default": name, "agents": {name: table}}


def _backend_of_server(base_url: str) -> str:
    host = urlsplit(base_url).hostname or ""
    return _SERVER_BACKENDS.get(host, "openai-chat")
