"""Computes what a declared agent changes at a start: model, settings, variables, profile.

Options of the command line have precedence over these changes. `variant` parses the agent.
"""

import os
from collections.abc import Mapping
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from refold.agents.definition import BadDefinition, agent_definition
from refold.agents.profile import Profile
from refold.config.layers import join_key
from refold.config.project import read_small_file
from refold.declared.command_tools import command_tools, is_file
from refold.declared.variant import Declared, Variant
from refold.errors import BadInput
from refold.provider.command.backends import full_name
from refold.values.modes import MODE_NAMES

TOOL_NAMES: Mapping[str, tuple[str, ...]] = {
    "read": ("read_file",), "write": ("write_file",), "edit": ("edit_file", "multi_edit"),
}  # fmt: skip
_TOOL_RULES: Mapping[str, str] = {
    "read_file": "read_file(**)", "write_file": "edit_file(**)", "edit_file": "edit_file(**)",
    "multi_edit": "edit_file(**)", "apply_patch": "edit_file(**)",
    "notebook_edit": "edit_file(**)", "glob": "glob(**)", "grep": "grep(**)",
    "list_files": "list_files(**)", "tree": "tree(**)",
}  # fmt: skip
_AUTO_TOOLS = ("read", "write", "edit", "bash")
_APPROVAL_MODES = {"auto_edit": "accept-edits", "yolo": "bypass"}
_KEY_VARIABLE = "REFOLD_AGENT_KEY"
_CHARS_A_TOKEN, _TOKENS_A_WORD = 4, 4 / 3  # for text in English


class Overlay(Struct, frozen=True):
    """What a declared agent changes at a start.

    `settings` have dotted keys. `address` is the host and port of the provider; "" and 0 mean
    that they are not changed.
    """

    model: str = ""
    settings: Mapping[str, object] = {}
    environ: Mapping[str, str] = {}
    address: tuple[str, int] = ("", 0)
    notices: tuple[str, ...] = ()


def overlay_of(declared: Declared) -> Overlay:
    """Return what this agent changes at a start. Raises `BadInput`."""
    variant = declared.variant
    provider = provider_of(variant)
    model = "/".join(filter(None, (provider, variant.model)))
    if variant.command:
        model = f"command/{variant.name}"
    settings: dict[str, object] = {"agent": variant.name}
    environ = dict[str, str]()
    notices = list[str]()
    if variant.command:
        command_settings = {
            "command": variant.command,
            "tools": variant.own_tools,
            "model": variant.model,
        }
        settings |= {
            join_key("commands", variant.name, key): value
            for key, value in command_settings.items()
        }
    settings |= _provider_settings(declared, provider)
    if variant.api_key:
        _require_provider(declared, provider, "api_key")
        environ[_KEY_VARIABLE] = variant.api_key
        settings[f"providers.{provider}.key_env"] = _KEY_VARIABLE
        notices.append(
            f"{declared.where}: the agent {variant.name} has its key in the file: better name "
            "the variable that holds it, in api_key_env"
        )
    mode_name = _APPROVAL_MODES.get(variant.approval, variant.approval)
    settings |= {
        "backend.context": variant.context_mode or None,
        "backend.format": variant.context_format or None,
        "backend.window_messages": variant.max_messages,
        "http.idle_seconds": variant.timeout,
        "limits.steps": variant.max_iterations,
        "terminal.display": variant.display or None,
        "terminal.show_tokens": variant.show_tokens,
        "permission_mode": cast("str | None", MODE_NAMES.get(mode_name)),
    }
    if (limit := token_limit(variant)) is not None:
        _require_provider(declared, model, "max_context_tokens")
        settings[join_key("prices", model, "window")] = limit
    address = (variant.host, variant.port or 0)
    changes = {key: value for key, value in settings.items() if value is not None}
    return Overlay(model, changes, environ, address, tuple(notices))


def allow_rules(declared: Declared) -> tuple[str, ...]:
    """Return permission rules that let the agent's tools run in the workspace without asking.

    Return () unless the agent has `auto_tools`. There is no rule for a tool in `confirm`. If
    the agent does not list its tools, the rules are for `_AUTO_TOOLS`.
    """
    if not declared.variant.auto_tools:
        return ()
    asking = confirm_tools(declared.variant)
    listed = list_tools(declared)
    names = tool_names(_AUTO_TOOLS) if listed is None else listed
    names = [name for name in names if name not in asking]
    return tuple(dict.fromkeys(_TOOL_RULES.get(name, name) for name in names))


def confirm_tools(variant: Variant) -> tuple[str, ...]:
    """Return the tools whose calls the user must confirm, by their names in refold."""
    return tool_names(variant.confirm)


def tool_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of these tools in refold.

    A short name, like edit, can mean several tools.
    """
    return tuple(
        name for short_name in names for name in TOOL_NAMES.get(short_name, (short_name,))
    )


def list_tools(declared: Declared) -> tuple[str, ...] | None:
    """Return the names of the tools that an agent may use; None means all tools.

    Tools in JSON files are included. Raises `BadInput`.
    """
    return _list_tools(declared.variant, _names_in_files(declared))


def _list_tools(variant: Variant, in_files: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the names in `variant.tools` that are not paths, and the names `in_files`.

    Return None, which means all tools, if the agent does not list its tools.
    """
    if variant.tools is None:
        return None
    named = (name for name in variant.tools if not is_file(name))
    return (*tool_names(tuple(named)), *in_files)


def _names_in_files(declared: Declared) -> tuple[str, ...]:
    return tuple(tool.name for tool in command_tools(declared))


def provider_of(variant: Variant) -> str:
    """Return the full name of the agent's backend; "" if the agent names none."""
    return full_name(variant.backend.lower())


def token_limit(variant: Variant) -> int | None:
    """Return the smallest of the agent's context limits, in tokens; None if it has none.

    Limits in characters and words are converted.
    """
    limits = list[int]()
    if variant.max_context_tokens:
        limits.append(variant.max_context_tokens)
    if variant.max_context_chars:
        limits.append(max(variant.max_context_chars // _CHARS_A_TOKEN, 1))
    if variant.max_context_words:
        limits.append(round(variant.max_context_words * _TOKENS_A_WORD))
    return min(limits, default=None)


def profile_of(declared: Declared, known_tools: frozenset[str]) -> Profile:
    """Return a declared agent as a profile: its prompt, tools and rules. Raises `BadInput`."""
    variant = declared.variant
    model = "/".join(filter(None, (variant.backend or "the usual model", variant.model)))
    fields: dict[str, Any] = {
        "description": variant.description or f"Works with {model}.",
        "ask": list(confirm_tools(variant)),
    }
    in_files = _names_in_files(declared)
    if taken := sorted(known_tools.intersection(in_files)):
        raise BadInput(
            f"{declared.where}: the agent {variant.name}: there is a tool {taken[0]!r} already: "
            "give yours another name"
        )
    known_tools = known_tools.union(in_files)
    if (tools := _list_tools(variant, in_files)) is not None:
        fields["tools"] = list(tools)
    try:
        definition = agent_definition(
            fields, prompt_of(declared), variant.name, known_tools
        )
    except BadDefinition as error:
        raise BadInput(f"{declared.where}: the agent {variant.name}: {error}") from error
    if definition.notes:
        raise BadInput(f"{declared.where}: the agent {variant.name}: {definition.notes[0]}")
    descriptions = _descriptions(declared, known_tools)
    return replace(definition.profile, where=declared.where, descriptions=descriptions)


def _descriptions(
    declared: Declared, known_tools: frozenset[str]
) -> tuple[tuple[str, str], ...]:
    """Return pairs of a tool and the agent's description of it. Raises `BadInput`."""
    texts = list[tuple[str, str]]()
    for text in declared.variant.describe:
        short_name, _, words = (part.strip() for part in text.partition(":"))
        names = tool_names((short_name,))
        if not words or not known_tools.issuperset(names):
            raise BadInput(
                f"{declared.where}: {declared.variant.name}.describe: {text[:60]!r} is not the "
                "name of a tool and words about it: write 'bash: Run a command'"
            )
        texts += ((name, words) for name in names)
    return tuple(texts)


def prompt_of(declared: Declared) -> str:
    """Return the agent's system prompt, with the texts of `agent_md` and the skills."""
    variant = declared.variant
    texts = [variant.system_prompt]
    if variant.agent_md:
        texts.append(_text(declared, "agent_md", variant.agent_md))
    for skill in variant.skills:
        texts.append(_text(declared, "skills", skill))
    return "\n\n".join(text.strip() for text in texts if text.strip())


def _text(declared: Declared, key: str, name: str) -> str:
    """Return the text of the file `name`, or of SKILL.md if `name` is a folder.

    `key` is the agent's key that names the file. A project's agent can name only files of the
    project. Raises `BadInput`.
    """
    path = os.path.realpath(os.path.join(declared.folder, os.path.expanduser(name)))
    if os.path.isdir(path):
        path = os.path.join(path, "SKILL.md")
    project = os.path.realpath(declared.folder)
    if os.path.basename(project) == ".refold":
        project = os.path.dirname(project)
    place = f"{declared.where}: {declared.variant.name}.{key}"
    if not declared.ours and os.path.commonpath((path, project)) != project:
        raise BadInput(f"{place}: {name!r} leads out of the project: put the file in it")
    try:
        return read_small_file(path).decode("utf-8-sig")
    except (BadInput, UnicodeDecodeError) as error:
        raise BadInput(
            f"{place}: {name!r} cannot be read: name a text file that exists"
        ) from error


def _provider_settings(declared: Declared, provider: str) -> dict[str, object]:
    """Return the settings of the agent's provider; {} if the agent has none.

    Raises `BadInput` if there are settings, but the agent names no provider.
    """
    variant = declared.variant
    settings = dict[str, object]()
    if variant.base_url:
        _require_provider(declared, provider, "base_url")
        settings[join_key("providers", provider, "base_url")] = variant.base_url
    if variant.api_key_env:
        _require_provider(declared, provider, "api_key_env")
        settings[join_key("providers", provider, "key_env")] = variant.api_key_env
    if (variant.host or variant.port) and not provider:
        _require_provider(declared, provider, "host" if variant.host else "port")
    return settings


def _require_provider(declared: Declared, name: str, key: str) -> None:
    """Raise `BadInput` if the provider's `name` is "" or that of a command.

    The error names the agent's `key`.
    """
    if not name or name.startswith("command/"):
        raise BadInput(
            f"{declared.where}: {declared.variant.name}.{key}: say which backend it is for, "
            'such as backend = "ollama"'
        )
