"""Reads the settings files and texts of a folder, which another user may have written.

Each file is read once, and the content that was read is shown, trusted and used. A project may
set only a few settings, and none that sends a key elsewhere, runs a program or loosens the
sandbox. `folder_settings` decides whether the files apply.
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
_MAX_DOTS = 500  # on a line; `tomllib` takes minutes for a key of thousands of parts
_FILE_OWNERS = {"config.toml": "project", "config.local.toml": "project-local"}
TOOLS_DIRECTORY = f"{PROJECT_DIRECTORY}/tools"  # files of tools
AGENT_FILES = ("agents.toml", "agents.yaml", "agents.json")  # `declared` reads them
# Other programs have files with these names, too. Files with agents have one of these lines.
_AGENTS_PATTERN = rb'(?m)^\s*\[agents\.|^agents\s*:|^\s*\{?\s*"agents"\s*:'
# Settings that a project may set to any value.
_FREE_SETTINGS = frozenset({
    "models.main", "models.small", "models.big", "models.judge", "python.rlm_model", "effort",
    "fallback_models",
    "permissions.allow", "permissions.ask", "permissions.deny",
    "limits.steps", "limits.wrap_up_steps", "limits.continuations", "limits.corrections",
    "limits.repeated_calls", "limits.repeated_searches", "limits.refused_responses", "limits.result_chars", "limits.output_tokens",
    "preset", "instructions",
})  # fmt: skip
# Settings that a project may set only to these values.
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
    """A file of a project, with a name like ".refold/config.toml".

    A settings file has checked `settings`. A file of MCP servers, agents, tools or hooks has
    its `content` instead.
    """

    name: str
    sha256: str
    settings: tuple[tuple[str, Origin], ...] = ()
    content: bytes = b""  # of a file without settings: MCP servers, agents, hooks


class Project(Struct, frozen=True):
    """The settings files of a project.

    `problem` is a sentence that says why they cannot be used, or "".
    """

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
    """Read the settings files in `directory`, except `user_file`, the user's own file.

    Never raises an exception: an unusable file becomes the `problem` of the result. Links are
    not followed, and pipes are not read.
    """
    folder = os.path.realpath(directory)
    try:
        return Project(folder, tuple(_files(folder, user_file)))
    except BadInput as error:
        return Project(folder, problem=str(error))


def content_lines(source: Project) -> tuple[str, ...]:
    """Return the content of the files as lines, one for each setting, safe to display."""
    lines = list[str]()
    for file in source.files:
        lines.append(f"{escape_to_one_line(file.name)}:")
        lines += (f"  {line}" for line in _file_lines(file) or ("(nothing)",))
    return tuple(lines)


def _file_lines(file: ProjectFile) -> list[str]:
    """Return the content of a file as lines, safe to display."""
    if file.name in MCP_FILES:
        from refold.mcp.servers import describe_file as server_lines
        from refold.mcp.servers import read as read_servers

        servers = read_servers(file.content, file.name)
        return [escape_to_one_line(line) for line in server_lines(servers)]
    if file.name in HOOK_FILES:
        from refold.hooks.configuration import hook_lines
        from refold.hooks.configuration import read as read_hooks

        of_claude = not file.name.startswith(PROJECT_DIRECTORY)
        hooks = read_hooks(
            file.content, file.name, trusted_with_all=False, of_claude=of_claude
        )
        return [escape_to_one_line(line) for line in hook_lines(hooks)]
    if file.content:
        text = file.content.decode("utf-8", "replace")
        return [escape_to_one_line(line) for line in text.splitlines()]
    return [line for key, o in file.settings for line in _setting_lines(key, o.value)]


def _files(folder: str, user_file: Path) -> Iterator[ProjectFile]:
    """Yield the files of a project: settings, MCP servers, hooks, agents and their tools."""

    def is_users_own(status: os.stat_result) -> bool:
        with suppress(OSError):
            return os.path.samestat(status, user_file.stat())
        return False

    settings = read_small_files(
        folder, PROJECT_DIRECTORY, tuple(_FILE_OWNERS), is_users_own
    )
    for path, content in settings.items():
        yield parse_file(path, _FILE_OWNERS[os.path.basename(path)], content)
    if folder == os.path.realpath(user_file.parent):
        return  # the files are the user's own
    servers = read_small_files(folder, ".", MCP_FILES, is_users_own)
    for path, content in servers.items():
        yield _content_file(path, content)
    yield from _hook_files(folder, is_users_own)
    agents = list[ProjectFile]()
    for top in (PROJECT_DIRECTORY, "."):
        contents = read_small_files(folder, top, AGENT_FILES, is_users_own)
        for path, content in contents.items():
            if top == PROJECT_DIRECTORY or re.search(_AGENTS_PATTERN, content):
                agents.append(_content_file(path, content))
    yield from agents
    if agents:
        yield from _tool_files(folder, is_users_own)


def _content_file(path: str, content: bytes) -> ProjectFile:
    name = os.path.normpath(path)
    return ProjectFile(name, sha256(content).hexdigest(), content=content)


def _tool_files(
    folder: str, is_users_own: Callable[[os.stat_result], bool]
) -> Iterator[ProjectFile]:
    """Yield the JSON files of the folder that define tools for its agents."""
    with suppress(OSError):
        entries = sorted(os.listdir(os.path.join(folder, TOOLS_DIRECTORY)))
        names = tuple(name for name in entries if name.endswith(".json"))[:_MAX_FILES]
        contents = read_small_files(folder, TOOLS_DIRECTORY, names, is_users_own)
        for path, content in contents.items():
            yield _content_file(path, content)


def _hook_files(
    folder: str, is_users_own: Callable[[os.stat_result], bool]
) -> Iterator[ProjectFile]:
    """Yield the files with hooks. Raises `BadInput` for an invalid file.

    An invalid hook is an error, because a hook may be there to refuse calls.
    """
    for name in HOOK_FILES:
        top, _, file = name.partition("/")
        contents = read_small_files(folder, top, (file,), is_users_own)
        for path, content in contents.items():
            if top == PROJECT_DIRECTORY or re.search(rb'"hooks"\s*:', content):
                from refold.hooks.configuration import read as read_hooks

                of_claude = top != PROJECT_DIRECTORY
                read_hooks(content, path, trusted_with_all=False, of_claude=of_claude)
                yield _content_file(path, content)


def hook_files_in(source: Project) -> dict[str, bytes]:
    """Return the content of the files of hooks, by name."""
    return {f.name: f.content for f in source.files if f.name in HOOK_FILES}


def has_agent_file(directory: Path, config: Path) -> bool:
    """Whether `directory`, its `.refold`, or `config` has a file of agents."""
    tops = (directory, directory / ".refold", config)
    return any(os.path.lexists(top / name) for top in tops for name in AGENT_FILES)


def agents_in(source: Project) -> dict[str, bytes]:
    """Return the content of the files of agents, by name, in order of precedence."""
    names = {*AGENT_FILES, *(f"{PROJECT_DIRECTORY}/{name}" for name in AGENT_FILES)}
    return {file.name: file.content for file in source.files if file.name in names}


def without_agents(source: Project, agent_file: str) -> Project:
    """Return the project without `agent_file`.

    If no other file of agents remains, the files of tools are left out, too.
    """
    files = [f for f in source.files if os.path.join(source.folder, f.name) != agent_file]
    remaining = Project(source.folder, tuple(files), source.problem)
    if agents_in(remaining):
        return remaining
    tools = tools_in(remaining)
    files = [f for f in files if f.name not in tools]
    return Project(source.folder, tuple(files), source.problem)


def tools_in(project: Project) -> dict[str, bytes]:
    """Return the content of the files of tools, by name."""
    return {
        f.name: f.content
        for f in project.files
        if os.path.dirname(f.name) == TOOLS_DIRECTORY
    }


def parse_file(label: str, owner: str, content: bytes) -> ProjectFile:
    """Parse the settings file `label` of a project.

    Raises `BadInput` for invalid or forbidden content.
    """
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
    """Return the setting if a project may set it, otherwise raise `BadInput`."""
    if key in _FREE_SETTINGS:
        return key, origin
    permitted_values = _BOUND_SETTINGS.get(key, ())
    if origin.value in permitted_values:
        return key, origin
    if permitted_values:
        permitted = " or ".join(str(value).lower() for value in permitted_values)
        raise BadInput(
            f"{origin.error_prefix}a project may set {key} to {permitted} only, and not to "
            f"{_value_text(origin.value)}: write it into your own settings if you want it"
        )
    raise BadInput(
        f"{origin.error_prefix}a project must not set {escape_to_one_line(key)[:200]}: write it into your "
        "own settings if you want it"
    )


def _setting_lines(key: str, value: object) -> Iterator[str]:
    """Yield a line for a setting, or a line for each of its rules."""
    if effect := _SETTING_REASONS.get(key):
        rules = cast("tuple[RuleWithCases, ...]", value)
        yield from (effect + escape_to_one_line(item.rule) for item in rules)
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
    """A file with text for the model.

    `folder` is the real path of the folder to which it applies, and `about` its length in
    words.
    """

    folder: str
    called: str
    about: str


class FolderTexts(Struct, frozen=True):
    """All texts for the model in a folder. `root` is its repository, or the folder itself."""

    root: str
    found: tuple[FolderText, ...] = ()

    @property
    def names(self) -> str:
        """The first few names, and the number of the others, for a sentence."""
        named = ", ".join(text.called for text in self.found[:_MAX_NAMES])
        more = len(self.found) - _MAX_NAMES
        return f"{named} and {more} more" if more > 0 else named


def texts(directory: str | os.PathLike[str]) -> FolderTexts:
    """Return the texts for the model in a folder. Never raises an error."""
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
    """Return a line for each text, safe to display."""
    return tuple(f"{text.called} ({text.about})" for text in folder.found)


def _folder(path: str, directory: str, root: str) -> str:
    """Return the folder to which the file at `path` applies: F for F/.refold/x.

    `path` is below one of the folders from `root` down to `directory`.
    """
    folders = folder_chain(directory, root)
    folder: str = os.path.dirname(path)
    while folder not in folders:
        folder = os.path.dirname(folder)
    return folder


def _other_texts(folder: str, directory: str) -> Iterator[FolderText]:
    """Yield all texts of a folder except files of instructions: skills, for example."""
    for name in TEXT_FILES:
        path = os.path.join(folder, name)
        if os.path.lexists(path):
            yield FolderText(folder, _display_name(path, directory), _size(path))
    for name in TEXT_FOLDERS:
        path = os.path.join(folder, name)
        try:
            with os.scandir(path) as entries:
                names = [entry.name for entry in islice(entries, _MAX_FILES)]
        except OSError:
            continue
        count = sum(not name.startswith(".") for name in names)
        if count:
            about = f"{_MAX_FILES} or more" if count == _MAX_FILES else str(count)
            yield FolderText(folder, _display_name(path, directory), f"{about} in it")


def _display_name(path: str, directory: str) -> str:
    return escape_name(os.path.relpath(path, directory))


def _size(path: str) -> str:
    try:
        return f"{os.stat(path).st_size:,} bytes"
    except OSError:
        return "cannot be read"


# Reading small files: links are not followed, pipes are not read, and large files are
# refused. Every failure is one sentence.

MAX_SETTINGS_BYTES = 64 * 1024  # settings are short, and a person must read them
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def read_small_files(
    folder: str,
    directory: str,
    names: tuple[str, ...],
    skip: Callable[[os.stat_result], bool],
) -> dict[str, bytes]:
    """Read the files `names` in `folder`/`directory`, and return them by "directory/name".

    `folder` is a real path. A missing file, and a file for which `skip` is true, are left out.
    Raises `BadInput` for a file that cannot be read.
    """
    files = dict[str, bytes]()
    with suppress(_NoSuchFile):
        parent = _open(folder, parent=None, label=folder, flags=os.O_DIRECTORY)
        try:
            below = _open(directory, parent, label=directory, flags=os.O_DIRECTORY)
        finally:
            os.close(parent)
        try:
            for name in names:
                with suppress(_NoSuchFile):
                    path = f"{directory}/{name}"
                    files[path] = _read_entry(name, below, path, skip)
        finally:
            os.close(below)
    return files


def read_small_file(path: str) -> bytes:
    """Return the content of a file that the user named. Links are followed.

    Raises `BadInput` if it cannot be read.
    """
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


def _open(name: str, parent: int | None, label: str, flags: int = 0) -> int:
    """Open a file or directory without following a link, and return its descriptor.

    Raises `_NoSuchFile`, or `BadInput` that names `label`.
    """
    try:
        return os.open(name, _READ_FLAGS | flags, dir_fd=parent)
    except FileNotFoundError as error:
        raise _NoSuchFile from error
    except OSError as error:
        reason = _special_kind(name, parent) or reason_of(error)
        raise _unreadable_error(label, reason) from error


def _read_entry(
    name: str, parent: int, label: str, skip: Callable[[os.stat_result], bool]
) -> bytes:
    opened = _open(name, parent, label)
    try:
        if skip(os.fstat(opened)):  # it counts as missing
            raise _NoSuchFile
        return _read_whole(opened, label)
    finally:
        os.close(opened)


def _read_whole(descriptor: int, label: str) -> bytes:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise _unreadable_error(label, "it is not a file")
    content = bytearray()
    try:
        # One byte more than permitted shows that the file is too large.
        while piece := os.read(descriptor, MAX_SETTINGS_BYTES + 1 - len(content)):
            content += piece
    except OSError as error:
        raise _unreadable_error(label, reason_of(error)) from error
    if len(content) > MAX_SETTINGS_BYTES:
        size = f"{MAX_SETTINGS_BYTES // 1024} KiB"
        raise _unreadable_error(label, f"it is larger than {size}")
    return bytes(content)


def _special_kind(name: str, parent: int | None) -> str:
    """Return a text that says that the file is a link or a socket; "" for other files."""
    with suppress(OSError):
        mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            return "it is a link"
        if stat.S_ISSOCK(mode):
            return "it is not a file"
    return ""


def _unreadable_error(label: str, reason: str) -> BadInput:
    return BadInput(f"the settings in {label} cannot be read: {reason}")
