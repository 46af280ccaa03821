"""Reads the settings and texts of a folder with caution: another user may have written them.

They are read once, and that content is shown, trusted and used. They may set little:
nothing that sends a key elsewhere, runs a program or loosens the sandbox.
`folder_settings` decides whether they count.
"""

import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import cast

from msgspec import Struct

from refold.config.layers import Layer, Origin, from_text
from refold.config.load import check_layer
from refold.config.paths import HOOK_FILES, MCP_FILES
from refold.config.settings import RuleWithCases
from refold.errors import BadInput, reason_of
from refold.prompts.instructions import project_instructions
from refold.prompts.repository import folder_chain, root_of
from refold.values.printable_names import escape_name
from refold.views.escape import escape_to_one_line

PROJECT_DIRECTORY = ".refold"
_MAX_DOTS = 500  # on a line; for a key of thousands of parts `tomllib` takes minutes
_FILE_OWNERS = {"config.toml": "project", "config.local.toml": "project-local"}
TOOLS_DIRECTORY = f"{PROJECT_DIRECTORY}/tools"  # files of tools
AGENT_FILES = ("agents.toml", "agents.yaml", "agents.json")  # `declared` reads them
# Other programs have files of these names, too.
_AGENTS_PATTERN = rb'(?m)^\s*\[agents\.|^agents\s*:|^\s*\{?\s*"agents"\s*:'
# Settings with any value.
_FREE_SETTINGS = frozenset({
    "models.main", "models.small", "models.big", "models.judge", "python.rlm_model", "effort",
    "fallback_models",
    "permissions.allow", "permissions.ask", "permissions.deny",
    "limits.steps", "limits.wrap_up_steps", "limits.continuations", "limits.corrections",
    "limits.repeated_calls", "limits.repeated_searches", "limits.refused_responses", "limits.result_chars", "limits.output_tokens",
    "preset", "instructions",
})  # fmt: skip
# Settings with only these values.
_BOUND_SETTINGS: Mapping[str, tuple[object, ...]] = {
    "permission_mode": ("default", "accept-edits", "plan", "rules-only"),
    "sandbox.profile": ("read-only",),
    "sandbox.network": (False,),
    "sandbox.user_namespaces": (False,),
    "ask_after_outside_text": (True,),
}
_SETTING_REASONS = {
    "permissions.allow": "runs without asking: ",
    "permissions.ask": "asks each time: ",
    "permissions.deny": "is refused: ",
}


class ProjectFile(Struct, frozen=True):
    """`name` is as in ".refold/config.toml". `settings` are checked.

    A file of MCP servers has its content instead.
    """

    name: str
    sha256: str
    settings: tuple[tuple[str, Origin], ...] = ()
    content: bytes = b""  # of a file without settings: MCP servers, agents, hooks


class Project(Struct, frozen=True):
    """`problem` says, in one sentence, why the files cannot be used; "" if they can."""

    folder: str  # links followed
    files: tuple[ProjectFile, ...] = ()
    problem: str = ""

    @property
    def hashes(self) -> dict[str, str]:
        return {file.name: file.sha256 for file in self.files}

    @property
    def layers(self) -> tuple[Layer, ...]:
        return tuple(file.settings for file in self.files)


def read_project(directory: Path, user_file: Path) -> Project:
    """The settings files in `directory`. `user_file`, the user's file, is not one of them.

    A folder cannot cause an error here: links are not followed and pipes not waited for.
    """
    folder = os.path.realpath(directory)
    try:
        return Project(folder, tuple(_files(folder, user_file)))
    except BadInput as error:
        return Project(folder, problem=str(error))


def content_lines(source: Project) -> tuple[str, ...]:
    """The content of the files, a line for each setting, safe to display."""
    lines = list[str]()
    for file in source.files:
        lines.append(f"{escape_to_one_line(file.name)}:")
        rows = [line for key, o in file.settings for line in _setting_lines(key, o.value)]
        if file.name in MCP_FILES:
            from refold.mcp.servers import describe_file as servers_in_words
            from refold.mcp.servers import read as read_servers

            words = servers_in_words(read_servers(file.content, file.name))
            rows = [escape_to_one_line(line) for line in words]
        elif file.name in HOOK_FILES:
            from refold.hooks.configuration import hook_lines as hooks_in_words
            from refold.hooks.configuration import read as read_hooks

            hooks = read_hooks(
                file.content,
                file.name,
                trusted_with_all=False,
                of_claude=not file.name.startswith(PROJECT_DIRECTORY),
            )
            rows = [escape_to_one_line(line) for line in hooks_in_words(hooks)]
        elif file.content:
            rows = [
                escape_to_one_line(line)
                for line in file.content.decode("utf-8", "replace").splitlines()
            ]
        lines += (f"  {line}" for line in rows or ("(nothing)",))
    return tuple(lines)


def _files(folder: str, user_file: Path) -> Iterator[ProjectFile]:
    def is_own(status: os.stat_result) -> bool:
        """Whether this folder is refold's own home."""
        with suppress(OSError):
            return os.path.samestat(status, user_file.stat())
        return False

    for called, content in read_small_files(
        folder, PROJECT_DIRECTORY, tuple(_FILE_OWNERS), is_own
    ).items():
        yield parse_file(
            called, _FILE_OWNERS[called.removeprefix(f"{PROJECT_DIRECTORY}/")], content
        )
    if folder == os.path.realpath(user_file.parent):
        return  # those files are the user's own
    for called, content in read_small_files(folder, ".", MCP_FILES, is_own).items():
        name, mark = called.removeprefix("./"), sha256(content).hexdigest()
        yield ProjectFile(name, mark, content=content)
    yield from _hook_files(folder, is_own)
    agents = list[ProjectFile]()
    for top in (PROJECT_DIRECTORY, "."):
        for called, content in read_small_files(folder, top, AGENT_FILES, is_own).items():
            if top == PROJECT_DIRECTORY or re.search(_AGENTS_PATTERN, content):
                name = os.path.normpath(called)
                agents.append(
                    ProjectFile(name, sha256(content).hexdigest(), content=content)
                )
    yield from agents
    if agents:
        yield from _tool_files(folder, is_own)


def _tool_files(
    folder: str, is_own: Callable[[os.stat_result], bool]
) -> Iterator[ProjectFile]:
    """The JSON files of tools that agents of this folder can name."""
    with suppress(OSError):
        entries = sorted(os.listdir(os.path.join(folder, TOOLS_DIRECTORY)))
        names = tuple(name for name in entries if name.endswith(".json"))[:_MAX_FILES]
        for called, content in read_small_files(
            folder, TOOLS_DIRECTORY, names, is_own
        ).items():
            yield ProjectFile(called, sha256(content).hexdigest(), content=content)


def _hook_files(
    folder: str, is_own: Callable[[os.stat_result], bool]
) -> Iterator[ProjectFile]:
    """Files with hooks, checked: an invalid one may be meant to refuse something."""
    for name in HOOK_FILES:
        top, _, file = name.partition("/")
        for called, content in read_small_files(folder, top, (file,), is_own).items():
            if top == PROJECT_DIRECTORY or re.search(rb'"hooks"\s*:', content):
                from refold.hooks.configuration import read as read_hooks

                theirs = top != PROJECT_DIRECTORY
                read_hooks(content, called, trusted_with_all=False, of_claude=theirs)
                yield ProjectFile(called, sha256(content).hexdigest(), content=content)


def hook_files_in(source: Project) -> dict[str, bytes]:
    """The files of hooks, by name."""
    return {f.name: f.content for f in source.files if f.name in HOOK_FILES}


def has_agent_file(directory: Path, config: Path) -> bool:
    """Whether there is a file of agents in one of the usual places."""
    tops = (directory, directory / ".refold", config)
    return any(os.path.lexists(top / name) for top in tops for name in AGENT_FILES)


def agents_in(source: Project) -> dict[str, bytes]:
    """The files of agents, by name, in order of precedence."""
    places = ("", PROJECT_DIRECTORY)
    return {
        f.name: f.content
        for f in source.files
        if os.path.dirname(f.name) in places and os.path.basename(f.name) in AGENT_FILES
    }


def without_agents(source: Project, agents: str) -> Project:
    """The folder without this file of agents, and without the tools that only it names."""
    files = [f for f in source.files if os.path.join(source.folder, f.name) != agents]
    left = Project(source.folder, tuple(files), source.problem)
    if agents_in(left):
        return left
    tools = tools_in(left)
    files = [f for f in files if f.name not in tools]
    return Project(source.folder, tuple(files), source.problem)


def tools_in(project: Project) -> dict[str, bytes]:
    """The files of tools, by name."""
    return {
        f.name: f.content
        for f in project.files
        if os.path.dirname(f.name) == TOOLS_DIRECTORY
    }


def parse_file(label: str, owner: str, content: bytes) -> ProjectFile:
    """Parse such a file. Raises `BadInput` for invalid or forbidden content."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(
            f"the settings in {label} cannot be read: it is not UTF-8: {error.reason}"
        ) from error
    if any(line.count(".") > _MAX_DOTS for line in text.splitlines()):
        raise BadInput(f"the settings in {label} cannot be read: a line is mostly dots")
    settings = check_layer(from_text(text, label, f"{owner} {label}"))
    values = tuple(check_allowed(key, origin) for key, origin in settings)
    return ProjectFile(label, sha256(content).hexdigest(), values)


def check_allowed(key: str, origin: Origin) -> tuple[str, Origin]:
    """Return the setting if a project may have it. Raises `BadInput`."""
    if key in _FREE_SETTINGS:
        return key, origin
    bound = _BOUND_SETTINGS.get(key, ())
    if origin.value in bound:
        return key, origin
    if bound:
        may = " or ".join(str(value).lower() for value in bound)
        raise BadInput(
            f"{origin.error_prefix}a project may set {key} to {may} only, and not to "
            f"{_value_text(origin.value)}: write it into your own settings if you want it"
        )
    raise BadInput(
        f"{origin.error_prefix}a project must not set {escape_to_one_line(key)[:200]}: write it into your "
        "own settings if you want it"
    )


def _setting_lines(key: str, value: object) -> Iterator[str]:
    if before := _SETTING_REASONS.get(key):
        rules = cast("tuple[RuleWithCases, ...]", value)
        yield from (before + escape_to_one_line(item.rule) for item in rules)
    else:
        yield f"{key} = {escape_to_one_line(_value_text(value))}"


def _value_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


# Folders with one file or folder for each prompt, skill or agent.
TEXT_FOLDERS = (
    ".refold/prompts", ".refold/skills", ".refold/agents", ".agents/skills", ".claude/skills",
    ".claude/agents", ".refold/commands", ".claude/commands",
)  # fmt: skip
TEXT_FILES = (".refold/skills.md", ".agent0/skills.md", ".agent/memory.md")
_MAX_FILES = 100
_MAX_NAMES = 8


class FolderText(Struct, frozen=True):
    """A file of a folder. `folder` is its real path; `about` says how long it is."""

    folder: str
    called: str
    about: str


class FolderTexts(Struct, frozen=True):
    """All texts of a folder, and `root`: its repository, or the folder itself."""

    root: str
    found: tuple[FolderText, ...] = ()

    @property
    def names(self) -> str:
        """Some of the names, for a sentence."""
        named = ", ".join(text.called for text in self.found[:_MAX_NAMES])
        more = len(self.found) - _MAX_NAMES
        return f"{named} and {more} more" if more > 0 else named


def texts(directory: str | os.PathLike[str]) -> FolderTexts:
    """The texts of a folder. The content of a folder cannot make it raise."""
    real = os.path.realpath(directory)
    root = root_of(real)
    result = list[FolderText]()
    for file in project_instructions(real, root):
        about = _size(file.path)
        result.append(FolderText(_folder(file.path, real, root), file.display_name, about))
    for folder in folder_chain(real, root):
        result += _other_texts(folder, real)
    return FolderTexts(root, tuple(result))


def describe_texts(folder: FolderTexts) -> tuple[str, ...]:
    """A line for each text, safe to display."""
    return tuple(f"{text.called} ({text.about})" for text in folder.found)


def _folder(path: str, directory: str, root: str) -> str:
    """The folder for which the file counts: for .refold/x that is the parent of .refold."""
    folders = folder_chain(directory, root)
    folder: str = os.path.dirname(path)
    while folder not in folders:
        folder = os.path.dirname(folder)
    return folder


def _other_texts(folder: str, directory: str) -> Iterator[FolderText]:
    for name in TEXT_FILES:
        path = os.path.join(folder, name)
        if os.path.lexists(path):
            yield FolderText(folder, _display_name(path, directory), _size(path))
    for name in TEXT_FOLDERS:
        path = os.path.join(folder, name)
        try:
            with os.scandir(path) as entries:
                many = sum(1 for e in islice(entries, _MAX_FILES) if e.name[:1] != ".")
        except OSError:
            continue
        if many:
            about = f"{_MAX_FILES} or more" if many == _MAX_FILES else str(many)
            yield FolderText(folder, _display_name(path, directory), f"{about} in it")


def _display_name(path: str, directory: str) -> str:
    return escape_name(os.path.relpath(path, directory))


def _size(path: str) -> str:
    try:
        return f"{os.stat(path).st_size:,} bytes"
    except OSError:
        return "cannot be read"


# Reading small files: no link is followed, no pipe waited for, and nothing large read.
# Every failure is one sentence.

MAX_SETTINGS_BYTES = 64 * 1024  # settings are short, and a person has to read them
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def read_small_files(
    folder: str,
    directory: str,
    names: tuple[str, ...],
    skip: Callable[[os.stat_result], bool],
) -> dict[str, bytes]:
    """The content of the files `names` in `folder`/`directory`, by "directory/name".

    `folder` is a real path. Raises `BadInput` for a file that cannot be read.
    """
    files = dict[str, bytes]()
    with suppress(_NoSuchFile):
        parent = _open_directory(folder, None, folder)
        try:
            below = _open_directory(directory, parent, directory)
        finally:
            os.close(parent)
        try:
            for name in names:
                with suppress(_NoSuchFile):
                    called = f"{directory}/{name}"
                    files[called] = _content(name, below, called, skip)
        finally:
            os.close(below)
    return files


def read_small_file(path: str) -> bytes:
    """Like `read_small_files`, for one file that the user named. Links are followed."""
    try:
        opened = os.open(path, _READ_FLAGS & ~os.O_NOFOLLOW)
    except OSError as error:
        raise _unreadable_error(path, reason_of(error)) from error
    try:
        return _read_whole(opened, path)
    finally:
        os.close(opened)


class _NoSuchFile(Exception):
    """Raised if a file does not exist."""


def _open_directory(name: str, parent: int | None, label: str) -> int:
    try:
        return os.open(name, _READ_FLAGS | os.O_DIRECTORY, dir_fd=parent)
    except FileNotFoundError as error:
        raise _NoSuchFile from error
    except OSError as error:
        raise _unreadable_error(
            label, _special_kind(name, parent) or reason_of(error)
        ) from error


def _content(
    name: str, parent: int, label: str, skip: Callable[[os.stat_result], bool]
) -> bytes:
    try:
        opened = os.open(name, _READ_FLAGS, dir_fd=parent)
    except FileNotFoundError as error:
        raise _NoSuchFile from error
    except OSError as error:
        raise _unreadable_error(
            label, _special_kind(name, parent) or reason_of(error)
        ) from error
    try:
        if skip(os.fstat(opened)):
            raise _NoSuchFile
        return _read_whole(opened, label)
    finally:
        os.close(opened)


def _read_whole(descriptor: int, label: str) -> bytes:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise _unreadable_error(label, "it is not a file")
    pieces, left = list[bytes](), MAX_SETTINGS_BYTES + 1
    try:
        while left and (piece := os.read(descriptor, left)):
            pieces.append(piece)
            left -= len(piece)
    except OSError as error:
        raise _unreadable_error(label, reason_of(error)) from error
    if not left:
        raise _unreadable_error(
            label, f"it is larger than {MAX_SETTINGS_BYTES // 1024} KiB"
        )
    return b"".join(pieces)


def _special_kind(name: str, parent: int | None) -> str:
    with suppress(OSError):
        mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            return "it is a link"
        if stat.S_ISSOCK(mode):
            return "it is not a file"
    return ""


def _unreadable_error(label: str, reason: str) -> BadInput:
    return BadInput(f"the settings in {label} cannot be read: {reason}")
