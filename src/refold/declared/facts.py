"""Converts a file of Prolog facts to agents, and agents to a file of facts.

`agent/2` and `default_agent/1` have the keys of agents.toml; `agent_backend/2`, `tool_spec/2`
and `loop_config/1` are the facts of UnifyWeaver's agent loop. A fact that would have no effect
in refold is an error with its line. `terms` parses the text, and `variant` checks the keys.
"""

from typing import Any, cast

from msgspec import Struct

from refold.declared.terms import (
    EMPTY,
    Atom,
    Clause,
    Compound,
    Number,
    QuotedText,
    Term,
    items_of,
    list_of,
    read_terms,
    term_text,
)
from refold.declared.variant import AgentFile, to_table
from refold.errors import BadInput
from refold.provider import catalog

_PROGRAM_BACKENDS = {
    "claude": "claude-code", "gemini": "gemini-cli", "codex": "codex-cli",
    "ollama": "ollama-cli", "coro": "coro",
}  # fmt: skip
# Arguments that refold itself passes to these programs, or replaces by its own.
_KNOWN_ARGUMENTS = frozenset(
    ("-p", "-m", "--model", "--verbose", "--output-format", "text")
)
_ENDPOINT_PROVIDERS = {
    "/v1/messages": "anthropic", "/chat/completions": "openai-chat", "/api/chat": "ollama",
}  # fmt: skip
_KEY_HEADERS = {
    "anthropic": ("x-api-key",), "openai-chat": ("Authorization", "Bearer"),
}  # fmt: skip
# The parameters of each tool, and their names in refold.
_TOOL_PARAMETERS = {
    "bash": {"command": "command"}, "read": {"path": "path"},
    "write": {"path": "path", "content": "content"},
    "edit": {"path": "path", "old_string": "old", "new_string": "new"},
}  # fmt: skip
_DESTRUCTIVE_TOOLS = ("bash", "write", "edit")


class FactDocument(Struct, frozen=True):
    """The facts in the form of agents.toml, and the line of each agent by its key path."""

    table: dict[str, Any]
    lines: dict[tuple[str, ...], int]


def document_of(content: bytes, file: str) -> FactDocument:
    """Parse a file of facts. Raises `BadInput`."""
    reader = _FactReader(file)
    for clause in read_terms(content, file):
        reader.add_clause(clause)
    return reader.document()


def as_facts(file: AgentFile) -> str:
    """Return the agents as the text of a file of facts; reading it gives the same agents."""
    lines = [":- module(agents, [agent/2, default_agent/1]).", ""]
    if file.default:
        lines += [f"default_agent({term_text(Atom(file.default))}).", ""]
    for agent in file.agents:
        name = term_text(Atom(agent.variant.name))
        keys = [
            f"    {term_text(Atom(key))}({term_text(_to_term(value))})"
            for key, value in to_table(agent.variant).items()
        ]
        if keys:
            lines += [f"agent({name}, [", ",\n".join(keys), "]).", ""]
        else:
            lines += [f"agent({name}, []).", ""]
    return "\n".join(lines)


class _FactReader:
    """Collects the facts of one file."""

    def __init__(self, file: str) -> None:
        self._file, self._line = file, 0
        self._agents = dict[str, dict[str, Any]]()
        self._lines = dict[tuple[str, ...], int]()
        self._backends = set[str]()
        self._tools = dict[str, bool]()  # for each tool, whether its calls must be approved
        self._described = list[str]()
        self._loop = dict[str, Any]()
        self._default = ""

    def add_clause(self, clause: Clause) -> None:
        """Add what a clause says about an agent. Raises `BadInput` for an unknown fact."""
        self._line = clause.line
        match clause.term:
            case Compound(":-", (Compound("module" | "op"),)):
                pass
            case Compound("agent", (Atom(name), keys)):
                self._add(name, {key: self._to_python(v) for key, v in self._keys(keys)})
            case Compound("default_agent", (Atom(name),)):
                self._default = name
                self._lines[("default",)] = clause.line
            case Compound("agent_backend", (Atom(name), keys)):
                self._add(name, self._backend(keys))
                self._backends.add(name)
            case Compound("tool_spec", (Atom(name), keys)):
                self._tools[name] = self._add_tool(name, keys)
            case Compound("loop_config", (keys,)):
                self._loop |= self._loop_settings(keys)
            case term:
                raise self._fact_error(
                    f"{term_text(term)[:80]} is not a fact about an agent; there are agent/2, "
                    "default_agent/1, agent_backend/2, tool_spec/2 and loop_config/1"
                )

    def document(self) -> FactDocument:
        """Return all agents. Facts on tools and the loop apply to each `agent_backend`."""
        loop_keys = dict(self._loop)
        confirms_destructive = loop_keys.pop("confirm_destructive_tools", None)
        for name in self._backends:
            table = self._agents[name]
            table |= loop_keys
            if self._tools:
                table["tools"] = list(self._tools)
                table["describe"] = list(self._described)
                table |= self._confirmations(confirms_destructive)
        fields: dict[str, Any] = {"agents": self._agents}
        if self._default:
            fields["default"] = self._default
        return FactDocument(fields, self._lines)

    def _confirmations(self, confirms_destructive: object) -> dict[str, Any]:
        """Return the keys `confirm` and `auto_tools` of an agent, without unset keys.

        `confirms_destructive` is None if the file does not set `confirm_destructive_tools`.
        """
        keys = dict[str, Any]()
        asking = [tool for tool, asks in self._tools.items() if asks]
        if confirms_destructive:
            destructive = [tool for tool in _DESTRUCTIVE_TOOLS if tool in self._tools]
            asking += [tool for tool in destructive if tool not in asking]
        if asking:
            keys["confirm"] = asking
        if confirms_destructive is False:
            keys["auto_tools"] = True
        return keys

    def _add(self, name: str, table: dict[str, Any]) -> None:
        """Add an agent with its table. Raises `BadInput` if the name is taken."""
        if name in self._agents:
            raise self._fact_error(f"there is an agent {name!r} already")
        self._agents[name] = table
        self._lines[("agents", name)] = self._line

    def _backend(self, keys: Term) -> dict[str, Any]:
        """Return the keys of an `agent_backend` fact as an agent's table of agents.toml."""
        facts = dict(self._keys(keys, many=True))
        table = dict[str, Any]()
        kind = self._take_value(facts, "type")
        if kind not in ("cli", "api"):
            raise self._fact_error("type(cli) or type(api) is missing")
        if kind == "cli":
            self._add_program(facts, table)
        else:
            self._add_api(facts, table)
        model = self._take_value(facts, "model") or self._take_value(facts, "default_model")
        models = self._take_value(facts, "models")
        if model:
            table["model"] = model
        if models is not None and model not in models:
            raise self._fact_error(f"model {model!r} is none of models({models})")
        for key in facts:  # each known key was taken above
            raise self._fact_error(f"{key}/{len(facts[key])} of {kind} backends is unknown")
        return table

    def _add_program(
        self, facts: dict[str, tuple[Term, ...]], table: dict[str, Any]
    ) -> None:
        """Add to `table` what `facts` say about a `type(cli)` backend, and remove these facts.

        Raises `BadInput` for a program or a value that refold does not support.
        """
        program = self._take_value(facts, "command")
        if program not in _PROGRAM_BACKENDS:
            raise self._fact_error(
                f"command({program!r}) is none of {', '.join(_PROGRAM_BACKENDS)}"
            )
        table["backend"] = _PROGRAM_BACKENDS[program]
        for argument in cast("list[object]", self._take_value(facts, "args") or []):
            if argument not in _KNOWN_ARGUMENTS:
                raise self._fact_error(
                    f"the argument {argument!r} is unknown: refold starts "
                    f"{program} with its own arguments"
                )
        self._require_value(facts, "context_format", "conversation_history")
        table |= {"context_mode": "continue", "context_format": "plain"}
        self._require_value(facts, "output_parser", "coro_parser")

    def _add_api(self, facts: dict[str, tuple[Term, ...]], table: dict[str, Any]) -> None:
        """Add to `table` what `facts` say about a `type(api)` backend, and remove these facts.

        Raises `BadInput` for an endpoint or a value that refold does not support.
        """
        url = str(self._take_value(facts, "endpoint"))
        ending = next((end for end in _ENDPOINT_PROVIDERS if url.endswith(end)), None)
        if ending is None:
            raise self._fact_error(
                f"the endpoint {url!r} ends in none of {', '.join(_ENDPOINT_PROVIDERS)}"
            )
        provider = _ENDPOINT_PROVIDERS[ending]
        table["backend"] = provider
        address = url.removesuffix(ending)
        if address != catalog.find(provider).base_url:
            table["base_url"] = address
        header = tuple(map(self._to_python, facts.pop("auth_header", ())))
        if header and header != _KEY_HEADERS.get(provider):
            own_header = " ".join(_KEY_HEADERS.get(provider, ("no header",)))
            raise self._fact_error(f"{provider} takes its key by {own_header}")
        self._require_value(facts, "auth_required", provider != "ollama")
        self._require_value(facts, "context_format", "messages_array")
        self._require_value(facts, "supports_tools", expected=True)
        self._require_value(facts, "supports_streaming", expected=True)

    def _add_tool(self, name: str, keys: Term) -> bool:
        """Store the description of a tool. Return whether the user must approve its calls."""
        if name not in _TOOL_PARAMETERS:
            raise self._fact_error(
                f"the tool {name!r} is none of {', '.join(_TOOL_PARAMETERS)}"
            )
        must_ask = False
        words = ""
        parameters = list[str]()
        for key, value in self._keys(keys):
            match key, value:
                case "confirmation_required", Atom("true" | "false" as word):
                    must_ask = word == "true"
                case "description", QuotedText(text):
                    words = text.strip()
                case "parameters", _:
                    parameters = self._parameters(name, value)
                case _:
                    raise self._fact_error(
                        f"{key}({term_text(value)[:60]}) of a tool is unknown"
                    )
        if description := " ".join(filter(None, (words, *parameters))):
            self._described.append(f"{name}: {description}")
        return must_ask

    def _parameters(self, tool: str, value: Term) -> list[str]:
        """Return descriptions of a tool's parameters, under the names that refold uses."""
        texts = dict[str, str]()
        for item in items_of(value) or []:
            match item:
                case Compound(
                    "param",
                    (Atom(name), Atom("string"), Atom("required"), QuotedText(text)),
                ):
                    texts[name] = text.strip()
                case _:
                    raise self._fact_error(
                        f"{term_text(item)[:60]} is not a param(Name, string, required, QuotedText)"
                    )
        names = _TOOL_PARAMETERS[tool]
        if texts.keys() != names.keys():
            raise self._fact_error(f"{tool} has the parameters {', '.join(sorted(names))}")
        return [f"({names[name]}: {text})" for name, text in texts.items() if text]

    def _loop_settings(self, keys: Term) -> dict[str, Any]:
        """Return the keys of a `loop_config` fact as keys of an agent's table."""
        facts = dict(self._keys(keys, many=True))
        self._require_value(facts, "trim_strategy", "oldest_first")
        self._require_value(facts, "display_tool_calls", expected=True)
        names = {
            "max_context_tokens": "max_context_tokens", "display_tokens": "show_tokens",
            "confirm_destructive_tools": "confirm_destructive_tools",
        }  # fmt: skip
        values = {
            our_key: self._take_value(facts, key)
            for key, our_key in names.items()
            if key in facts
        }
        for key in facts:  # each known key was taken above
            raise self._fact_error(f"{key} of loop_config is unknown")
        return values

    def _require_value(self, facts: dict[str, Any], key: str, expected: object) -> None:
        """Remove a fact if there is one. Raise `BadInput` if its value is not `expected`."""
        if key in facts and (value := self._take_value(facts, key)) != expected:
            raise self._fact_error(
                f"{key}({value!r}) is not supported here: only {expected!r} is"
            )

    def _take_value(self, facts: dict[str, tuple[Term, ...]], key: str) -> Any:
        """Remove a fact, and return its only argument; None if there is no such fact."""
        if key not in facts:
            return None
        arguments = facts.pop(key)
        if len(arguments) != 1:
            raise self._fact_error(f"{key} takes one value, not {len(arguments)}")
        return self._to_python(arguments[0])

    def _keys(self, keys: Term, *, many: bool = False) -> list[tuple[str, Any]]:
        """Return name and value of each `key(Value)` in a Prolog list. Raises `BadInput`.

        With `many`, a key may have several values, and the second item of each pair is a tuple
        of them.
        """
        pairs = list[tuple[str, Any]]()
        items = items_of(keys)
        if items is None:
            raise self._fact_error(f"{term_text(keys)[:60]} is not a list of key(Value)")
        for item in items:
            match item:
                case Compound(key, arguments) if many or len(arguments) == 1:
                    pairs.append((key, arguments if many else arguments[0]))
                case _:
                    raise self._fact_error(f"{term_text(item)[:60]} is not a key(Value)")
            if [name for name, _ in pairs].count(key) > 1:
                raise self._fact_error(f"{key} is there twice")
        return pairs

    def _to_python(self, term: Term) -> Any:
        """Return an atom, text, number or list as a Python value. Raises `BadInput`."""
        match term:
            case Atom("true" | "false" as word):
                return word == "true"
            case Atom(name) if term != EMPTY:
                return name
            case QuotedText(value) | Number(value):
                return value
            case _:
                items = items_of(term)
                if items is None:
                    raise self._fact_error(
                        f"{term_text(term)[:60]} is not a text, number, true, false or list"
                    )
                return [self._to_python(item) for item in items]

    def _fact_error(self, problem: str) -> BadInput:
        return BadInput(f"{self._file}:{self._line}: {problem}")


def _to_term(value: Any) -> Term:
    """Return a Python value as a Prolog term."""
    match value:
        case bool():
            return Atom(str(value).lower())
        case str():
            return QuotedText(value)
        case int() | float():
            return Number(value)
        case _:
            return list_of([_to_term(item) for item in value])
