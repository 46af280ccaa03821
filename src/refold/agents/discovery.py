"""Finds agents in their folders, and says why a definition is ignored.

An agent is a file NAME.md with front matter, or a folder NAME with `system_prompt.md` and,
optionally, `meta.yml` and `tools.yml`. The folders of a project count only if it is trusted. All
files are read as untrusted: links must not lead out, and size is limited. `definition` turns
fields into a profile.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from refold.agents.builtin import AGENT_ALIASES, BUILTIN_AGENTS
from refold.agents.definition import AgentDefinition, BadDefinition, agent_definition
from refold.agents.profile import Profile
from refold.errors import ToolFailed
from refold.skills.directories import (
    SkillFolder,
    SkillScope,
    content_of,
    list_entries,
    own_folder,
    project_folders,
    trusted_folders,
)
from refold.skills.front_matter import BadFrontMatter, Fields, fields, yaml_of
from refold.values.printable_names import escape_name
from refold.values.text import TrustedText

MAX_FILE_BYTES = 64 * 1024  # of one file
MAX_FOLDER_AGENTS = 100  # agents of one folder
_FILE_SUFFIX = ".md"
_PROMPT, _META, _TOOLS = (
    "system_prompt.md",
    ("meta.yml", "meta.yaml"),
    ("tools.yml", "tools.yaml"),
)
_IN_A_PROJECT = (".refold/agents", ".claude/agents")
_AT_HOME = ".claude/agents"


def agent_folders(scope: SkillScope) -> tuple[SkillFolder, ...]:
    """The folders of agents that count, in order of precedence."""
    return (
        *trusted_folders(project_folders(scope, _IN_A_PROJECT), scope),
        own_folder(scope, "agents"),
        SkillFolder(os.path.join(scope.home, _AT_HOME), f"~/{_AT_HOME}", "yours"),
    )


def folders_without_trust(scope: SkillScope) -> tuple[SkillFolder, ...]:
    """The folders of the project that are ignored because it is not trusted."""
    every = project_folders(scope, _IN_A_PROJECT)
    counts = set(trusted_folders(every, scope))
    return tuple(folder for folder in every if folder not in counts)


class AgentScan(Struct, frozen=True):
    """`problems` are sentences for the user: what is ignored, and why."""

    profiles: tuple[Profile, ...] = ()
    problems: tuple[str, ...] = ()


class _Source(Struct, frozen=True):
    """The file or folder of one definition. `called`: its name, escaped for a screen."""

    name: str
    path: str
    called: str
    bound: str  # links may not lead out of it; "": they may
    trusted: TrustedText


def find_agents(
    places: Iterable[SkillFolder], tool_names: Callable[[], Collection[str]]
) -> AgentScan:
    """All agents of these folders, in order of precedence. `tool_names` returns the names of tools."""
    taken, problems = dict[str, Profile](), list[str]()
    for source in _sources(places, problems):
        try:
            read = _read(source, tool_names())
            _check_free(read.profile, taken, source)
        except BadDefinition as wrong:
            problems.append(f"the agent in {source.called} is ignored: {wrong}")
            continue
        profile = replace(read.profile, where=source.called)
        if profile.name not in taken:
            taken[profile.name] = profile
            problems += (f"the agent in {source.called}: {note}" for note in read.notes)
    return AgentScan(tuple(taken.values()), tuple(problems))


def _check_free(profile: Profile, profiles: dict[str, Profile], source: _Source) -> None:
    """Raises `BadDefinition` if another agent has the name; an equal definition is
    accepted."""
    name = profile.name
    if name in BUILTIN_AGENTS or name in AGENT_ALIASES:
        raise BadDefinition(f"{name} is an agent of refold; give yours another name")
    before = profiles.get(name)
    if before is not None and replace(before, where="") != profile:
        raise BadDefinition(
            f"the one in {before.where} has the name {name}, and comes first"
        )


def _sources(places: Iterable[SkillFolder], problems: list[str]) -> Iterator[_Source]:
    """Everything that may be a definition. The same folder twice counts once."""
    searched = set[str]()
    for place in places:
        real = os.path.realpath(place.path)
        if real in searched:
            continue
        searched.add(real)
        for name, folder in _list_names(real, place, problems):
            path = os.path.join(real, name)
            bound = place.bound if place.whose == "project" else ""
            called = escape_name(f"{place.called}/{name}")
            if folder:
                yield _Source(name, path, called, bound, place.trusted)
            else:
                yield _Source(
                    name.removesuffix(_FILE_SUFFIX), path, called, bound, place.trusted
                )


def _list_names(
    real: str, place: SkillFolder, problems: list[str]
) -> list[tuple[str, bool]]:
    """Names in a folder, sorted, with whether each is a folder."""
    entries = [
        (entry.name, folder)
        for entry in list_entries(real, place, "agents", problems)
        if (folder := _is_agent(entry)) or entry.name.endswith(_FILE_SUFFIX)
    ]
    if len(entries) > MAX_FOLDER_AGENTS:
        called = escape_name(place.called)
        problems.append(
            f"{called} has more than {MAX_FOLDER_AGENTS} agents: the others are ignored"
        )
    return entries[:MAX_FOLDER_AGENTS]


def _is_agent(entry: os.DirEntry[str]) -> bool:
    """Whether this folder defines an agent. Others are ignored silently."""
    return entry.is_dir() and any(
        os.path.lexists(os.path.join(entry.path, name)) for name in (_PROMPT, *_META)
    )


def _read(source: _Source, tool_names: Collection[str]) -> AgentDefinition:
    written = _folder(source) if os.path.isdir(source.path) else _file(source)
    return agent_definition(written.values, written.body, source.name, tool_names)


def _file(source: _Source) -> Fields:
    return _fields(_text(source.path, source), "")


def _folder(source: _Source) -> Fields:
    values = dict[str, object]()
    for names in (_META, _TOOLS):
        for name in names:
            path = os.path.join(source.path, name)
            if os.path.lexists(path):
                values |= _yaml(_text(path, source, name), name)
                break
    path = os.path.join(source.path, _PROMPT)
    prompt = _text(path, source, _PROMPT) if os.path.lexists(path) else ""
    if prompt.startswith("---\n"):
        front = _fields(prompt, f"{_PROMPT}, ")
        return Fields(front.values | values, front.body)
    return Fields(values, prompt)


def _fields(text: str, before: str) -> Fields:
    try:
        return fields(text)
    except BadFrontMatter as error:
        raise BadDefinition(
            f"{before}line {error.line}: {escape_name(error.what)}"
        ) from error


def _yaml(text: str, name: str) -> dict[str, object]:
    try:
        return yaml_of(text.splitlines(), 1)
    except BadFrontMatter as error:
        raise BadDefinition(
            f"{name}, line {error.line}: {escape_name(error.what)}"
        ) from error


def _text(path: str, source: _Source, name: str = "") -> str:
    before = f"{name}: " if name else ""
    try:
        content = content_of(path, source.bound, MAX_FILE_BYTES, source.trusted)
    except FileNotFoundError as error:
        raise BadDefinition(f"{before}it is gone, or a link to nothing") from error
    except ToolFailed as error:
        raise BadDefinition(before + str(error).rstrip(".")) from error
    try:
        text = content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BadDefinition(f"{before}line {line}: this is not UTF-8 text") from error
    if "\0" in text:
        raise BadDefinition(f"{before}it is not text: it contains zero bytes")
    return text
