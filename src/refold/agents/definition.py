"""Turns the fields of an agent definition into a profile. Pure.

A definition may use refold's fields, and those of Claude Code's agents under their names there.
A field can only restrict: no definition can allow a call, or choose a mode in which more calls
run without a question. `discovery` finds and reads the files.
"""

import re
from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from typing import Literal, cast, get_args

from msgspec import Struct

from refold.agents.profile import (
    ALL_EFFECTS,
    READ_ONLY_EFFECTS,
    Acting,
    Profile,
    Role,
    TurnLimits,
    Use,
)
from refold.errors import BadInput
from refold.permissions.rules import (
    COMMAND_TOOLS,
    EDIT_TOOLS,
    LOOK_TOOLS,
    may_be_tool_of_other_session,
    our_tool_name,
)
from refold.tools.task import TOOL_NAME as TASK
from refold.values.printable_names import escape_name
from refold.values.text import visible_text
from refold.values.tools import Effect

_NAME_PATTERN = r"[a-z0-9]+(?:[-_.][a-z0-9]+)*"
_MAX_NAME_CHARS, _MAX_DESCRIPTION_CHARS = 64, 600
# Of a word, and of a name or an entry, in errors and notes.
_MAX_SHOWN_CHARS, _MAX_SHOWN_NAME_CHARS = 40, 80
_MAX_SHOWN_FIELDS = 8
_MAX_TOOL_NAME_CHARS = 60  # in an error
_MAX_COUNT = 9_999  # of a version, and of steps
# Field names of other tools, and refold's names for them.
_FIELD_ALIASES = {
    "when_to_use": "description", "active": "tools", "allowed-tools": "tools",
    "disallowedTools": "without", "maxTurns": "steps", "inject_memory": "memory",
    "advertise_skills": "skills", "permissionMode": "mode", "read-only": "readonly",
}  # fmt: skip
_FIELD_NAMES = frozenset((
    "name", "description", "role", "model", "tools", "deferred", "without", "ask", "deny",
    "steps", "memory", "skills", "as", "acting", "mode", "effects", "readonly", "version",
))  # fmt: skip
# Fields that only affect the display in other tools.
_DISPLAY_FIELDS = frozenset(("color",))
_MODEL_ROLES: Mapping[str, Role] = {
    "haiku": "small", "sonnet": "main", "opus": "big", "inherit": "main",
}  # fmt: skip
# Tool names of other agents that correspond to several of refold's tools.
_TOOL_ALIASES = {
    "Write": ("write_file",), "write": ("write_file",),
    "Edit": ("edit_file", "multi_edit"), "edit": ("edit_file", "multi_edit"),
    "MultiEdit": ("multi_edit",), "NotebookEdit": ("notebook_edit",),
    "Skill": ("list_skills", "read_skill"), "Agent": (TASK,), "agent": (TASK,),
    "ask_user_question": ("ask_user",),
}  # fmt: skip
# An entry of a list of tools: a name, with a rule in parentheses or not.
_ENTRY_PATTERN = r"([^(),]+?)\s*(?:\(([^()]*)\))?"
# A comma that is not in parentheses.
_COMMA_PATTERN = r",(?![^()]*\))"
_SUBAGENT_WORD = "subagent"  # also means "child"
_YES, _NO = frozenset(("true", "yes", "on")), frozenset(("false", "no", "off", "none"))


class BadDefinition(Exception):
    """Raised for an invalid definition; the text says why."""


class AgentDefinition(Struct, frozen=True):
    """A parsed definition. `notes` are sentences for the user about ignored fields."""

    profile: Profile
    notes: tuple[str, ...] = ()


def agent_definition(
    fields: Mapping[str, object], prompt: str, name: str, tool_names: Collection[str]
) -> AgentDefinition:
    """Parse an agent definition. Raises `BadDefinition` if it is invalid.

    `prompt` is the system prompt, `name` the name of the file, and `tool_names` has the names
    of all tools.
    """
    return _DefinitionReader(fields, tool_names).profile(name, visible_text(prompt).strip())


class _DefinitionReader:
    """Reads the fields of one definition."""

    def __init__(self, fields: Mapping[str, object], tool_names: Collection[str]) -> None:
        self._values = {
            _FIELD_ALIASES.get(key, key): value for key, value in fields.items()
        }
        self._tool_names = tool_names
        self._notes = list[str]()  # sentences about what is ignored
        self._ask = list[str]()  # rules, as in the settings
        self._deny = list[str]()

    def profile(self, name: str, prompt: str) -> AgentDefinition:
        """Return the definition. Raises `BadDefinition` for an invalid field."""
        effects = self._effects()
        without = self._parse_without()
        if not {Effect.CHANGE, Effect.RUN} <= effects:
            without = (*without, TASK)  # a child could have more rights than its parent
        # These lists may have entries that are rules, so they are read before `ask` and `deny`.
        tools = self._tools("tools", default=("*",))
        deferred = self._tools("deferred", default=())
        self._ask += self._list("ask")
        self._deny += self._list("deny")
        profile = Profile(
            name=self._name(name),
            description=self._description(),
            prompt=prompt,
            version=self._count("version"),
            role=self._role(),
            tools=tools,
            deferred=deferred,
            without=without,
            effects=effects,
            ask=tuple(self._ask),
            deny=tuple(self._deny),
            bounds=TurnLimits(steps=self._count("steps")),
            mode=self._mode(),
            memory=self._flag("memory", default=True),
            skills=self._flag("skills", default=True),
            acting=cast("Acting", self._parse_choice("acting", get_args(Acting), "native")),
            use=self._parse_use(),
        )
        self._check_rules(profile)
        return AgentDefinition(profile, (*self._notes, *self._unknown_fields_note()))

    def _name(self, name: str) -> str:
        """Return the name in the definition, or otherwise `name`. Raises `BadDefinition`."""
        text = (self._text("name") or name).strip().casefold()
        if not re.fullmatch(_NAME_PATTERN, text) or len(text) > _MAX_NAME_CHARS:
            raise BadDefinition(
                f"the name {escape_name(text)[:_MAX_SHOWN_NAME_CHARS]!r} is not of letters a to z, digits and "
                f"hyphens, {_MAX_NAME_CHARS} at most"
            )
        return text

    def _description(self) -> str:
        """Return the description on one line, shortened if needed. Raises `BadDefinition`
        without one.
        """
        words = " ".join(
            visible_text(self._text("description")).replace("\\n", " ").split()
        )
        if not words:
            raise BadDefinition("it has no description: say in a sentence what it is for")
        return words if len(words) <= _MAX_DESCRIPTION_CHARS else _shorten(words)

    def _role(self) -> Role:
        """Return the role of the agent's model, from the field `role` or else `model`."""
        role = self._text("role").strip()
        if role:
            return cast("Role", self._parse_choice("role", get_args(Role), "main"))
        model = self._text("model").strip()
        if model in get_args(Role):
            return cast("Role", model)
        if model and model.casefold() not in _MODEL_ROLES:
            self._notes.append(
                f"the model {escape_name(model)[:_MAX_SHOWN_NAME_CHARS]!r} is ignored: an agent names a role "
                "(small, main, big or judge), and the settings say which model that is"
            )
        return _MODEL_ROLES.get(model.casefold(), "main")

    def _effects(self) -> frozenset[Effect]:
        """Return the effects that tools may have: those that the definition names, or all.

        With `readonly`, return only read-only effects.
        """
        named = self._list("effects")
        effects = {effect.value: effect for effect in Effect}
        for word in named:
            if word not in effects:
                raise BadDefinition(
                    f"the effect {escape_name(word)!r} is none of {', '.join(effects)}"
                )
        chosen = frozenset(effects[word] for word in named) if named else ALL_EFFECTS
        if self._flag("readonly", default=False):
            return chosen & READ_ONLY_EFFECTS
        return chosen

    def _tools(self, key: str, default: tuple[str, ...]) -> tuple[str, ...]:
        """Return refold's names of the tools in the list `key`; `default` if the field is
        missing.

        A rule in parentheses, as in `Bash(git *)`, makes all calls of its tool ask.
        """
        if key not in self._values:
            return default
        tools = list[str]()
        for written in self._list(key):
            name, rule_text = _split_entry(written)
            names = _TOOL_ALIASES.get(name, (our_tool_name(name),))
            if not self._is_known(name):
                self._notes.append(
                    f"{self._unknown_tool_text(name)}, so it is not given it"
                )
            if rule_text:
                self._notes.append(
                    f"{escape_name(written)[:_MAX_SHOWN_NAME_CHARS]!r} is used as a rule that asks: only your "
                    "own rules let calls run without asking"
                )
                self._ask += names
            tools += names
        return tuple(dict.fromkeys(tools))

    def _parse_without(self) -> tuple[str, ...]:
        """Return the excluded tools. An entry with parentheses does not exclude its tool, but
        adds a deny rule.
        """
        tools = list[str]()
        for written in self._list("without"):
            name, rule_text = _split_entry(written)
            if not self._is_known(name):  # it would exclude nothing, without any notice
                raise BadDefinition(f"without: {self._unknown_tool_text(name)}")
            if rule_text:
                self._deny.append(written)
            else:
                tools += _equivalent_tools(name, self._tool_names)
        return tuple(dict.fromkeys(tools))

    def _mode(self) -> Literal["", "plan"]:
        """Return the mode of the agent. All modes except plan mode are ignored with a note."""
        mode = self._text("mode").strip()
        if mode == "plan":
            return "plan"
        if mode not in ("", "default"):
            self._notes.append(
                f"the mode {escape_name(mode)[:_MAX_SHOWN_CHARS]!r} is ignored: plan is the only one that an "
                "agent may choose, because only you decide what runs without asking"
            )
        return ""

    def _parse_use(self) -> Use:
        """Return how the agent may be used, from the field `as`: a word, or a list of words."""
        words = self._list("as") or ("both",)
        for word in words:
            if word not in (*get_args(Use), _SUBAGENT_WORD):
                raise BadDefinition(
                    f"as is {escape_name(word)[:_MAX_SHOWN_CHARS]!r}, and none of "
                    f"{', '.join(get_args(Use))}, {_SUBAGENT_WORD}"
                )
        uses = {"child" if word == _SUBAGENT_WORD else word for word in words}
        return "both" if len(uses) > 1 else cast("Use", uses.pop())

    def _check_rules(self, profile: Profile) -> None:
        """Raise `BadDefinition` if a rule is invalid or names an unknown tool."""
        try:
            rules = profile.rules
        except BadInput as error:
            raise BadDefinition(str(error)) from error
        for rule in rules:
            if not self._is_known(rule.tool):
                raise BadDefinition(
                    f"the rule {str(rule)!r}: {self._unknown_tool_text(rule.tool)}"
                )

    def _unknown_fields_note(self) -> tuple[str, ...]:
        """Return one sentence about all unknown fields; () if there are none."""
        unknown = [key for key in self._values if key not in _FIELD_NAMES | _DISPLAY_FIELDS]
        if not unknown:
            return ()
        shown = unknown[:_MAX_SHOWN_FIELDS]
        fields = ", ".join(escape_name(key)[:_MAX_SHOWN_CHARS] for key in shown)
        if len(unknown) > len(shown):
            fields += f" and {len(unknown) - len(shown)} more"
        return (f"{fields}: ignored: refold has no such field",)

    def _is_known(self, name: str) -> bool:
        aliases = _TOOL_ALIASES.get(name, (our_tool_name(name),))
        is_tool_here = any(self._is_tool(alias) for alias in aliases)
        return is_tool_here or may_be_tool_of_other_session(name)

    def _is_tool(self, name: str) -> bool:
        return any(fnmatchcase(tool, name) for tool in self._tool_names)

    def _unknown_tool_text(self, name: str) -> str:
        """Return a phrase about an unknown tool, with a similar name if there is such a name."""
        from refold.values.similar_names import similar

        suggestions = similar(name, self._tool_names, 1)
        hint = f" (did you mean {suggestions[0]}?)" if suggestions else ""
        return f"there is no tool {escape_name(name)[:_MAX_TOOL_NAME_CHARS]!r}{hint}"

    def _text(self, key: str) -> str:
        """Return the text of a field; "" if the definition does not have the field."""
        value = self._values.get(key)
        if value is None:
            return ""
        if isinstance(value, str | int | float):
            return str(value)
        raise BadDefinition(f"{key} must be a text")

    def _list(self, key: str) -> tuple[str, ...]:
        """Return the words of a field, which is a list or one text with commas."""
        value = self._values.get(key)
        if value is None:
            return ()
        items = re.split(_COMMA_PATTERN, value) if isinstance(value, str) else value
        if not isinstance(items, list):
            raise BadDefinition(f"{key} must be a list of words")
        words = list[str]()
        for item in cast("list[object]", items):
            if not isinstance(item, str):
                raise BadDefinition(f"{key} must be a list of words")
            word = visible_text(item).strip()
            if word:
                words.append(word)
        return tuple(words)

    def _count(self, key: str) -> int:
        """Return the number of a field, or 0 if the definition does not have the field."""
        text = self._text(key).strip()
        if not text:
            return 0
        is_number = text.isascii() and text.isdecimal()
        if not (is_number and 0 < int(text) <= _MAX_COUNT):
            raise BadDefinition(
                f"{key} must be a number above 0, not {escape_name(text)[:_MAX_SHOWN_CHARS]!r}"
            )
        return int(text)

    def _flag(self, key: str, *, default: bool) -> bool:
        """Return a true-or-false value; for another value, note a problem and return
        `default`.
        """
        value = self._values.get(key, default)
        if isinstance(value, bool):
            return value
        text = str(value).casefold().strip() if isinstance(value, str) else ""
        if text in _YES:
            return True
        if text in _NO:
            return False
        self._notes.append(f"{key} is ignored: it must be true or false")
        return default

    def _parse_choice(self, key: str, choices: tuple[str, ...], default: str) -> str:
        """Return one of `choices`; `default` if the field is empty. Raises `BadDefinition`."""
        text = self._text(key).strip() or default
        if text not in choices:
            raise BadDefinition(
                f"{key} is {escape_name(text)[:_MAX_SHOWN_CHARS]!r}, and none of {', '.join(choices)}"
            )
        return text


def _split_entry(text: str) -> tuple[str, str]:
    """Split an entry like `Bash(git *)` into the name and the text in parentheses.

    The text is "" if the entry has no parentheses.
    """
    match = re.fullmatch(_ENTRY_PATTERN, text)
    return (match[1], match[2] or "") if match else (text, "")


def _equivalent_tools(name: str, tool_names: Collection[str]) -> tuple[str, ...]:
    """Return the tools to exclude if a definition excludes `name`.

    A name of another program, such as Edit, stands for all tools that edit.
    """
    own = our_tool_name(name)
    is_of_other_program = name not in tool_names
    if own in COMMAND_TOOLS:
        return tuple(sorted(COMMAND_TOOLS))
    if is_of_other_program and own in EDIT_TOOLS:
        return tuple(sorted(EDIT_TOOLS))
    if is_of_other_program and own in LOOK_TOOLS:
        return tuple(sorted(LOOK_TOOLS))
    return _TOOL_ALIASES.get(name, (own,))


def _shorten(text: str) -> str:
    return text[: _MAX_DESCRIPTION_CHARS - 2].rsplit(" ", 1)[0] + " …"  # ends with a word
