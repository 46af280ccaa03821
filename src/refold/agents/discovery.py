"""Finds agents in their folders, and says why a definition is ignored.

An agent is a file NAME.md with front matter, or a folder NAME with `system_prompt.md` and,
optionally, `meta.yml` and `tools.yml`. The folders of a project are read only if it is trusted.
No file is trusted by itself: a link must not lead out of the folder, and the size of a file is
limited. `definition` turns fields into a profile.
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
# The files of an agent that is a folder.
_PROMPT_FILE = "system_prompt.md"
_META_FILES = ("meta.yml", "meta.yaml")
_TOOLS_FILES = ("tools.yml", "tools.yaml")
_IN_A_PROJECT = (".refold/agents", ".claude/agents")
_AT_HOME = ".claude/agents"


def agent_folders(scope: SkillScope) -> tuple[SkillFolder, ...]:
    """Return the folders of agents that are read, in order of precedence."""
    return (
        *trusted_folders(project_folders(scope, _IN_A_PROJECT), scope),
        own_folder(scope, "agents"),
        SkillFolder(os.path.join(scope.home, _AT_HOME), f"~/{_AT_HOME}", "yours"),
    )


def folders_without_trust(scope: SkillScope) -> tuple[SkillFolder, ...]:
    """Return the folders of the project that are ignored because it is not trusted."""
    folders = project_folders(scope, _IN_A_PROJECT)
    trusted = set(trusted_folders(folders, scope))
    return tuple(folder for folder in folders if folder not in trusted)


class AgentScan(Struct, frozen=True):
    """The agents that were found in folders.

    `problems` has sentences for the user about definitions that are ignored.
    """

    profiles: tuple[Profile, ...] = ()
    problems: tuple[str, ...] = ()


class _Source(Struct, frozen=True):
    """The file or folder of one definition. `called` is its name, escaped for a screen."""

    name: str
    path: str
    called: str
    bound: str  # links may not lead out of this folder; "": they may
    trusted: TrustedText


def find_agents(
    places: Iterable[SkillFolder], tool_names: Callable[[], Collection[str]]
) -> AgentScan:
    """Return all agents that are defined in these folders. `tool_names` returns the names of
    all tools.
    """
    profiles = dict[str, Profile]()  # by name
    problems = list[str]()
    for source in _sources(places, problems):
        try:
            definition = _read(source, tool_names())
            _check_name_is_free(definition.profile, profiles, source)
        except BadDefinition as error:
            problems.append(f"the agent in {source.called} is ignored: {error}")
            continue
        profile = replace(definition.profile, where=source.called)
        if profile.name in profiles:  # an equal definition
            continue
        profiles[profile.name] = profile
        for note in definition.notes:
            problems.append(f"the agent in {source.called}: {note}")
    return AgentScan(tuple(profiles.values()), tuple(problems))


def _check_name_is_free(
    profile: Profile, profiles: dict[str, Profile], source: _Source
) -> None:
    """Raise `BadDefinition` if a built-in agent or another definition has this name.

    An equal definition is accepted.
    """
    name = profile.name
    if name in BUILTIN_AGENTS or name in AGENT_ALIASES:
        raise BadDefinition(f"{name} is an agent of refold; give yours another name")
    before = profiles.get(name)
    if before is not None and replace(before, where="") != profile:
        raise BadDefinition(
            f"the one in {before.where} has the name {name}, and comes first"
        )


def _sources(places: Iterable[SkillFolder], problems: list[str]) -> Iterator[_Source]:
    """Yield every file or folder in these folders that may be a definition.

    Problems with a folder are added to `problems`. A folder that is listed twice counts once.
    """
    searched = set[str]()
    for place in places:
        real = os.path.realpath(place.path)
        if real in searched:
            continue
        searched.add(real)
        for name, is_folder in _list_names(real, place, problems):
            path = os.path.join(real, name)
            bound = place.bound if place.whose == "project" else ""
            called = escape_name(f"{place.called}/{name}")
            agent_name = name if is_folder else name.removesuffix(_FILE_SUFFIX)
            yield _Source(agent_name, path, called, bound, place.trusted)


def _list_names(
    real: str, place: SkillFolder, problems: list[str]
) -> list[tuple[str, bool]]:
    """Return the names of possible definitions in a folder, sorted.

    The bool is True if the definition is a folder, and False if it is a file.
    """
    entries = list[tuple[str, bool]]()
    for entry in list_entries(real, place, "agents", problems):
        if _is_agent_folder(entry):
            entries.append((entry.name, True))
        elif entry.name.endswith(_FILE_SUFFIX):
            entries.append((entry.name, False))
    if len(entries) > MAX_FOLDER_AGENTS:
        called = escape_name(place.called)
        problems.append(
            f"{called} has more than {MAX_FOLDER_AGENTS} agents: the others are ignored"
        )
    return entries[:MAX_FOLDER_AGENTS]


def _is_agent_folder(entry: os.DirEntry[str]) -> bool:
    """Whether this folder defines an agent. Other folders are ignored without a notice."""
    return entry.is_dir() and any(
        os.path.lexists(os.path.join(entry.path, name))
        for name in (_PROMPT_FILE, *_META_FILES)
    )


def _read(source: _Source, tool_names: Collection[str]) -> AgentDefinition:
    """Return the definition in a file or folder. Raises `BadDefinition`."""
    is_folder = os.path.isdir(source.path)
    fields_read = _folder_fields(source) if is_folder else _file_fields(source)
    return agent_definition(fields_read.values, fields_read.body, source.name, tool_names)


def _file_fields(source: _Source) -> Fields:
    return _fields(_text(source.path, source), before="")


def _folder_fields(source: _Source) -> Fields:
    """Return the fields of a folder's files. The YAML files take precedence over front
    matter.
    """
    values = dict[str, object]()
    for names in (_META_FILES, _TOOLS_FILES):
        for name in names:
            path = os.path.join(source.path, name)
            if os.path.lexists(path):
                values |= _yaml(_text(path, source, name), name)
                break
    path = os.path.join(source.path, _PROMPT_FILE)
    prompt = _text(path, source, _PROMPT_FILE) if os.path.lexists(path) else ""
    if prompt.startswith("---\n"):
        front = _fields(prompt, before=f"{_PROMPT_FILE}, ")
        return Fields(front.values | values, front.body)  # the other files take precedence
    return Fields(values, prompt)


def _fields(text: str, before: str) -> Fields:
    """Return the fields of a text with front matter. An error message begins with `before`."""
    try:
        return fields(text)
    except BadFrontMatter as error:
        raise BadDefinition(
            f"{before}line {error.line}: {escape_name(error.what)}"
        ) from error


def _yaml(text: str, name: str) -> dict[str, object]:
    """Return the fields in the YAML `text` of the file `name`. Raises `BadDefinition`."""
    try:
        return yaml_of(text.splitlines(), 1)
    except BadFrontMatter as error:
        raise BadDefinition(
            f"{name}, line {error.line}: {escape_name(error.what)}"
        ) from error


def _text(path: str, source: _Source, name: str = "") -> str:
    """Return the text of a file of a definition.

    Raises `BadDefinition`, whose message begins with `name`.
    """
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
