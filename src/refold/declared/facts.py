"""Agents from Prolog facts, and back.

`agent/2` and `default_agent/1` have the keys of agents.toml. `agent_backend/2`, `tool_spec/2` and
`loop_config/1` are those of UnifyWeaver's agent loop. A fact that would change nothing here is an
error with its line. `terms` reads the text, `variant` checks the keys.
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
from refold.declared.variant import AgentFile, written
from refold.errors import BadInput
from refold.provider import catalog

_PROGRAMS = {
    "claude": "claude-code", "gemini": "gemini-cli", "codex": "codex-cli",
    "ollama": "ollama-cli", "coro": "coro",
}  # fmt: skip
# Arguments that refold gives these programs itself, or replaces by its own.
_ARGUMENTS = frozenset(("-p", "-m", "--model", "--verbose", "--output-format", "text"))
_ENDPOINTS = {
    "/v1/messages": "anthropic", "/chat/completions": "openai-chat", "/api/chat": "ollama",
}  # fmt: skip
_HEADERS = {
    "anthropic": ("x-api-key",), "openai-chat": ("Authorization", "Bearer"),
}  # fmt: skip
# The parameters of each tool, and what they are called here.
_PARAMETERS = {
    "bash": {"command": "command"}, "read": {"path": "path"},
    "write": {"path": "path", "content": "content"},
    "edit": {"path": "path", "old_string": "old", "new_string": "new"},
}  # fmt: skip
_DESTRUCTIVE = ("bash", "write", "edit")


class FactDocument(Struct, frozen=True):
    """The same as a table of agents.toml, and the line of each agent and key."""

    table: dict[str, Any]
    lines: dict[tuple[str, ...], int]


def document_of(content: bytes, file: str) -> FactDocument:
    """What the facts of a file say. Raises `BadInput`."""
    reader = _FactReader(file)
    for clause in read_terms(content, file):
        reader.take(clause)
    return reader.document()


def as_facts(found: AgentFile) -> str:
    """The agents as a file of facts, which is read back as the same agents."""
    lines = [":- module(agents, [agent/2, default_agent/1]).", ""]
    if found.default:
        lines += [f"default_agent({term_text(Atom(found.default))}).", ""]
    for each in found.agents:
        name = term_text(Atom(each.variant.name))
        keys = [
            f"    {term_text(Atom(key))}({term_text(_term(value))})"
            for key, value in written(each.variant).items()
        ]
        lines += [f"agent({name}, [", ",\n".join(keys), "]).", ""] if keys else [
            f"agent({name}, []).", "",
        ]  # fmt: skip
    return "\n".join(lines)


class _FactReader:
    """Collects the facts of one file."""

    def __init__(self, file: str) -> None:
        self._file, self._line = file, 0
        self._agents = dict[str, dict[str, Any]]()
        self._lines = dict[tuple[str, ...], int]()
        self._backends = set[str]()
        self._tools = dict[str, bool]()  # and does it ask?
        self._described = list[str]()
        self._loop = dict[str, Any]()
        self._default = ""

    def take(self, clause: Clause) -> None:
        self._line = clause.line
        match clause.term:
            case Compound(":-", (Compound("module" | "op"),)):
                pass
            case Compound("agent", (Atom(name), keys)):
                self._add(name, {key: self._plain(v) for key, v in self._keys(keys)})
            case Compound("default_agent", (Atom(name),)):
                self._default = name
                self._lines["default",] = clause.line
            case Compound("agent_backend", (Atom(name), keys)):
                self._add(name, self._backend(keys))
                self._backends.add(name)
            case Compound("tool_spec", (Atom(name), keys)):
                self._tools[name] = self._tool(name, keys)
            case Compound("loop_config", (keys,)):
                self._loop |= self._config(keys)
            case term:
                raise self._wrong(
                    f"{term_text(term)[:80]} is not a fact about an agent; there are agent/2, "
                    "default_agent/1, agent_backend/2, tool_spec/2 and loop_config/1"
                )

    def document(self) -> FactDocument:
        destructive = self._loop.pop("confirm_destructive_tools", None)
        for name in self._backends:
            table = self._agents[name]
            table |= self._loop
            if self._tools:
                table["tools"] = list(self._tools)
                table["describe"] = list(self._described)
            asking = [tool for tool, asks in self._tools.items() if asks]
            if destructive:
                asking += [t for t in _DESTRUCTIVE if t in self._tools and t not in asking]
            if asking:
                table["confirm"] = asking
            if destructive is False and self._tools:
                table["auto_tools"] = True
        found: dict[str, Any] = {"agents": self._agents}
        if self._default:
            found["default"] = self._default
        return FactDocument(found, self._lines)

    def _add(self, name: str, table: dict[str, Any]) -> None:
        if name in self._agents:
            raise self._wrong(f"there is an agent {name!r} already")
        self._agents[name] = table
        self._lines["agents", name] = self._line

    def _backend(self, keys: Term) -> dict[str, Any]:
        given = dict(self._keys(keys, many=True))
        table = dict[str, Any]()
        kind = self._taken(given, "type")
        if kind not in ("cli", "api"):
            raise self._wrong("type(cli) or type(api) is missing")
        if kind == "cli":
            self._cli(given, table)
        else:
            self._api(given, table)
        model = self._taken(given, "model") or self._taken(given, "default_model")
        models = self._taken(given, "models")
        if model:
            table["model"] = model
        if models is not None and model not in models:
            raise self._wrong(f"model {model!r} is none of models({models})")
        for key in given:
            raise self._wrong(
                f"{key}/{len(given[key])} of {kind} backends is not known here"
            )
        return table

    def _cli(self, given: dict[str, tuple[Term, ...]], table: dict[str, Any]) -> None:
        program = self._taken(given, "command")
        if program not in _PROGRAMS:
            raise self._wrong(f"command({program!r}) is none of {', '.join(_PROGRAMS)}")
        table["backend"] = _PROGRAMS[program]
        for argument in cast("list[object]", self._taken(given, "args") or []):
            if argument not in _ARGUMENTS:
                raise self._wrong(
                    f"the argument {argument!r} is not known here: refold starts "
                    f"{program} with its own arguments"
                )
        self._only(given, "context_format", "conversation_history")
        table |= {"context_mode": "continue", "context_format": "plain"}
        self._only(given, "output_parser", "coro_parser")

    def _api(self, given: dict[str, tuple[Term, ...]], table: dict[str, Any]) -> None:
        url = str(self._taken(given, "endpoint"))
        ending = next((each for each in _ENDPOINTS if url.endswith(each)), None)
        if ending is None:
            raise self._wrong(
                f"the endpoint {url!r} ends in none of {', '.join(_ENDPOINTS)}"
            )
        provider = table["backend"] = _ENDPOINTS[ending]
        address = url.removesuffix(ending)
        if address != catalog.find(provider).base_url:
            table["base_url"] = address
        header = tuple(map(self._plain, given.pop("auth_header", ())))
        if header and header != _HEADERS.get(provider):
            taken = " ".join(_HEADERS.get(provider, ("no header",)))
            raise self._wrong(f"{provider} takes its key by {taken}")
        self._only(given, "auth_required", provider not in ("ollama",))
        self._only(given, "context_format", "messages_array")
        self._only(given, "supports_tools", expected=True)
        self._only(given, "supports_streaming", expected=True)

    def _tool(self, name: str, keys: Term) -> bool:
        if name not in _PARAMETERS:
            raise self._wrong(f"the tool {name!r} is none of {', '.join(_PARAMETERS)}")
        asks, words, parameters = False, "", list[str]()
        for key, value in self._keys(keys):
            match key, value:
                case "confirmation_required", Atom("true" | "false" as word):
                    asks = word == "true"
                case "description", QuotedText(words):
                    pass
                case "parameters", _:
                    parameters = self._parameters(name, value)
                case _:
                    raise self._wrong(
                        f"{key}({term_text(value)[:60]}) of a tool is not known here"
                    )
        if said := " ".join(filter(None, (words.strip(), *parameters))):
            self._described.append(f"{name}: {said}")
        return asks

    def _parameters(self, tool: str, value: Term) -> list[str]:
        """What is said of each, under the name that it has here."""
        texts = dict[str, str]()
        for each in items_of(value) or []:
            match each:
                case Compound(
                    "param",
                    (Atom(name), Atom("string"), Atom("required"), QuotedText(text)),
                ):
                    texts[name] = text.strip()
                case _:
                    raise self._wrong(
                        f"{term_text(each)[:60]} is not a param(Name, string, required, QuotedText)"
                    )
        names = _PARAMETERS[tool]
        if texts.keys() != names.keys():
            raise self._wrong(f"{tool} has the parameters {', '.join(sorted(names))}")
        return [f"({names[name]}: {text})" for name, text in texts.items() if text]

    def _config(self, keys: Term) -> dict[str, Any]:
        given = dict(self._keys(keys, many=True))
        self._only(given, "trim_strategy", "oldest_first")
        self._only(given, "display_tool_calls", expected=True)
        names = {
            "max_context_tokens": "max_context_tokens", "display_tokens": "show_tokens",
            "confirm_destructive_tools": "confirm_destructive_tools",
        }  # fmt: skip
        found = {
            ours: self._taken(given, key) for key, ours in names.items() if key in given
        }
        for key in given:
            raise self._wrong(f"{key} of loop_config is not known here")
        return found

    def _only(self, given: dict[str, Any], key: str, expected: object) -> None:
        """Accept the one value that is as refold does it anyway."""
        if key in given and (value := self._taken(given, key)) != expected:
            raise self._wrong(
                f"{key}({value!r}) is not supported here: only {expected!r} is"
            )

    def _taken(self, given: dict[str, tuple[Term, ...]], key: str) -> Any:
        if key not in given:
            return None
        arguments = given.pop(key)
        if len(arguments) != 1:
            raise self._wrong(f"{key} takes one value, not {len(arguments)}")
        return self._plain(arguments[0])

    def _keys(self, keys: Term, *, many: bool = False) -> list[tuple[str, Any]]:
        """The `key(Value)` terms of a list; with `many`, all arguments of each."""
        found = list[tuple[str, Any]]()
        items = items_of(keys)
        if items is None:
            raise self._wrong(f"{term_text(keys)[:60]} is not a list of key(Value)")
        for each in items:
            match each:
                case Compound(key, arguments) if many or len(arguments) == 1:
                    found.append((key, arguments if many else arguments[0]))
                case _:
                    raise self._wrong(f"{term_text(each)[:60]} is not a key(Value)")
            if [name for name, _ in found].count(key) > 1:
                raise self._wrong(f"{key} is there twice")
        return found

    def _plain(self, term: Term) -> Any:
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
                    raise self._wrong(
                        f"{term_text(term)[:60]} is not a text, number, true, false or list"
                    )
                return [self._plain(each) for each in items]

    def _wrong(self, what: str) -> BadInput:
        return BadInput(f"{self._file}:{self._line}: {what}")


def _term(value: Any) -> Term:
    match value:
        case bool():
            return Atom(str(value).lower())
        case str():
            return QuotedText(value)
        case int() | float():
            return Number(value)
        case _:
            return list_of([_term(each) for each in value])
