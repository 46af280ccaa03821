"""Builds the parts of a session's system prompt that depend on the folder.

It reads the folder (instructions, presets, the state of git), and whether the user trusts it,
once, when a session is opened. So the beginning of each request stays the same, and prompt
caches stay valid. `prompts/` cuts and joins the texts; memory, skills and agents supply theirs.
"""

import os
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING

import anyio
from msgspec import Raw, Struct
from msgspec.structs import replace

from refold.config.folder_settings import untrusted_texts
from refold.config.paths import Paths, home, user_trees
from refold.config.settings import Settings
from refold.config.trusted_folders import TrustedFolders
from refold.errors import BadInput
from refold.journal.events.kinds import SystemPromptSet
from refold.permissions.facts import Facts, is_protected
from refold.place.port import Real
from refold.prompts import system_text
from refold.prompts.instructions import (
    OWN_FILE,
    InstructionFile,
    Instructions,
    project_instructions,
    read,
)
from refold.prompts.presets import (
    BUILT_IN,
    Preset,
    PresetFolder,
    preset,
    presets,
    shadow_notices,
    small_system,
)
from refold.prompts.repository import (
    Environment,
    Git,
    choose_environment,
    environment,
    folder_chain,
    git_state,
    root_of,
)
from refold.prompts.system_text import RenderedPrompt, part_of
from refold.values.display import Diff
from refold.values.path_names import below
from refold.values.printable_names import escape_name, shorten

if TYPE_CHECKING:
    from refold.config.trusted_versions import TrustedVersions
    from refold.journal.events.kinds import InstructionsFound
    from refold.place.elsewhere.greeting import PlaceGreeting

SHELL_NAME = "bash"  # the program that runs commands
_PROMPTS_FOLDER = "prompts"
_MAX_BRANCH_CHARS = 72
_SECRET_REASON = "it may contain secrets"
_NO_FACTS = Facts()  # enough to recognize a protected file by its name
_SECRET_WORDS = frozenset(
    (".git", ".git-credentials", ".npmrc", ".yarnrc", ".yarnrc.yml", ".envrc")
)
_SECRET_ENDS_PATTERN = r"\.(?:env|tfstate|tfvars)$"


class SessionGround(Struct, frozen=True, kw_only=True):
    """Where a session works. `roots` are the directories of its workspace, as real paths.

    With `trust`, the folder counts as trusted for this run. `like` is the directory of which
    the folder is a worktree; the trusted versions of that directory's instructions are used.
    `why_unreadable` returns why a file may not be read, or "". `elsewhere` describes the place
    of a workspace that is not on this machine.
    """

    roots: tuple[str, ...]
    trust: bool = False
    like: str = ""
    why_unreadable: Callable[[Real], str] = lambda real: ""
    now: Callable[[], float] = time.time
    elsewhere: "Callable[[], PlaceGreeting] | None" = None


class PromptParts(Struct, frozen=True, kw_only=True):
    """The parts of the system prompt that other packages supply. `window` is in tokens."""

    preset: str = "coding"
    prompt: str = ""  # the agent's own prompt, which replaces that of the preset
    own: str = ""  # the user's own prompt, which replaces both
    memory: str = ""
    skills: str = ""
    agents: str = ""
    more: str = ""  # text that the user adds
    schema: Raw | None = None
    small: bool = False
    window: int = 0  # 0: unknown


class _FolderTexts(Struct, frozen=True):
    """The texts of a folder, as they were read when the session was opened."""

    environment: str
    environment_small: str
    instructions: Instructions
    notices: tuple[str, ...]


class SystemPromptBuilder:
    """Builds the system prompts of one opened session in one directory."""

    def __init__(
        self,
        settings: Settings,
        paths: Paths,
        environ: Mapping[str, str],
        ground: SessionGround,
    ) -> None:
        self._settings, self._paths, self._ground = settings, paths, ground
        self._home = home(environ)
        self._directory = ground.roots[0]
        self.root = root_of(self._directory)
        self._facts = Facts(
            own=paths.own,
            trees=user_trees(paths, ground.roots),
        )
        self._trusted: str | None = None
        self._damaged = ""
        self._searched = frozenset[str]()  # folders without instructions
        self._started = ground.now()
        self._folder_texts: _FolderTexts | None = None

    @property
    def trust_root(self) -> str:
        """The real path of the trusted folder, or "" if none is trusted.

        The files in and below this folder are trusted.
        """
        if self._trusted is None:
            self._trusted = self._find_trust_root()
        return self._trusted

    @property
    def trust_source(self) -> str:
        """The directory whose trusted versions also apply in its worktrees.

        With `--trust` it is "".
        """
        return self._ground.like or ("" if self._ground.trust else self._directory)

    def reread(self) -> None:
        """Read the files again for the next prompt, because the user has trusted other
        versions.
        """
        self._folder_texts, self._searched = None, frozenset[str]()
        vars(self).pop("versions", None)  # the value of the cached property

    def check(self) -> None:
        """Raise `BadInput` if the settings name a preset that does not exist."""
        if self._settings.preset not in BUILT_IN:
            self.preset(self._settings.preset)

    def text(self, material: PromptParts, before: SystemPromptSet) -> RenderedPrompt:
        """Return the system prompt of a turn, built from `material` and the texts of the
        folder. `before` is the last prompt that the model got.

        Raises `BadInput` for a preset that is missing or cannot be used.
        """
        texts, small = self._read_folders(), material.small
        window = material.window or self._settings.context.default_window_tokens
        environment_text = texts.environment_small if small else texts.environment
        max_chars = {
            name: system_text.max_part_chars(name, window, small=small)
            for name in system_text.WINDOW_SHARES
        }
        instructions, notices = system_text.instructions(
            texts.instructions.pieces, max_chars["instructions"]
        )
        parts_to_cut = {
            "memory": material.memory,
            "skills": material.skills,
            "agents": material.agents,
        }
        return system_text.render_prompt(
            (
                ("prompt", self._prompt(material)),
                (
                    "environment",
                    choose_environment(environment_text, part_of(before, "environment")),
                ),
                ("instructions", instructions),
                *(
                    (name, system_text.cut_part(part, name, max_chars[name]))
                    for name, part in parts_to_cut.items()
                ),
                ("more", material.more),
                ("schema", system_text.schema_instruction(material.schema)),
            ),
            notices,
        )

    def notices(self) -> tuple[str, ...]:
        """Return notices for the user about files that are not used, with reasons."""
        return self._read_folders().notices

    def preset(self, name: str) -> Preset:
        """Return the preset of this name.

        Raises `BadInput` if it is missing or cannot be used.
        """
        return preset(name, self._preset_folders(self.trust_root))

    def has_preset(self, name: str) -> bool:
        """Whether a preset of this name can be used here."""
        try:
            return name in BUILT_IN or bool(self.preset(name))
        except BadInput:
            return False

    def presets(self) -> tuple[tuple[Preset, ...], tuple[str, ...]]:
        """Return all presets that can be chosen, and a sentence for each unusable preset."""
        return presets(self._preset_folders(self.trust_root))

    def _prompt(self, material: PromptParts) -> str:
        """Return the agent's own prompt, or else a preset: the short one for a small model."""
        own_prompt = material.own or material.prompt
        if own_prompt:
            return own_prompt
        if material.small and material.preset == "coding":
            return small_system()
        return self.preset(material.preset).text

    def _read_folders(self) -> _FolderTexts:
        """Return the texts of the folders, which are read at the first call."""
        if self._folder_texts is None:
            trusted = self.trust_root
            basic = Environment(
                directory=self._directory,
                more=self._ground.roots[1:],
                today=time.strftime("%Y-%m-%d", time.localtime(self._ground.now())),
                platform=os.uname().sysname,
            )
            whole = replace(basic, shell=SHELL_NAME, git=git_state(self.root))
            if self._ground.elsewhere is not None:
                whole = _describe_place(whole, self._ground.elsewhere())
            instructions = self._instructions(trusted)
            notices = (
                *instructions.notices, *self._version_notices(trusted), *shadow_notices(self._preset_folders(trusted)),
                *self._untrusted_notices(),
            )  # fmt: skip
            # A small model makes mistakes in long paths, and takes a second to write one.
            small = environment(replace(basic, directory=""))
            self._folder_texts = _FolderTexts(
                environment(whole), small, instructions, notices
            )
        return self._folder_texts

    def _find_trust_root(self) -> str:
        """Return the outermost folder whose files are trusted; "" if no folder is trusted."""
        if self._ground.trust:
            return self.root
        return TrustedFolders(self._paths.folders).find_trusted_above(
            self._directory, self.root
        )

    def _instructions(self, trusted: str) -> Instructions:
        """Return the user's own instructions, and those of the project below `trusted`."""
        own = os.path.join(self._paths.config, OWN_FILE)
        own_instructions = Instructions()
        if os.path.lexists(own):
            # The user's own file may import any file of the user.
            read_own = read([InstructionFile(own, "/")], self._home, _secret_reason)
            pieces = tuple(replace(piece, own=True) for piece in read_own.pieces)
            own_instructions = Instructions(pieces, read_own.notices)
        if not (trusted and self._settings.instructions):
            return own_instructions
        files = [
            file
            for file in project_instructions(self._directory, self.root)
            if below(file.path, trusted)
            and os.path.realpath(file.path) != os.path.realpath(own)
        ]
        of_folder = read(files, self._home, self._why_unreadable, self.trusted_text)
        return Instructions(
            (*own_instructions.pieces, *of_folder.pieces),
            (*own_instructions.notices, *of_folder.notices),
        )

    @cached_property
    def versions(self) -> "TrustedVersions | None":
        """Return the trusted versions of the folder's instructions.

        Return None if the folder is not trusted, or if its versions cannot be read.
        """
        ground = self._ground
        place = ground.like or self._directory
        root = root_of(place)
        trusted = TrustedFolders(self._paths.folders).find_trusted_above(place, root)
        if not (trusted and self.trust_root):
            return None
        from refold.config.instruction_files import read_all
        from refold.config.trusted_versions import TrustedVersions

        # In a worktree, this is the folder that corresponds to the trusted one.
        base = os.path.join(self.root, os.path.relpath(trusted, root))
        present = ground.trust and not ground.like
        try:
            versions = TrustedVersions(
                self._paths.data, trusted, os.path.normpath(base), present=present
            )
            if not versions.is_recorded:
                # The folder was trusted by a version of refold that recorded no versions.
                read_all(root, trusted, self._home, versions.text_to_send)
                versions.record_first()
        except BadInput as error:
            self._damaged = str(error)
            return None
        return versions

    def trusted_text(self, real: str, current_text: str) -> str | None:
        """Return the version of a text in the folder that the model may get.

        Return None if it may get none.
        """
        if self.versions is not None:
            return self.versions.text_to_send(real, current_text)
        return None if self._damaged else current_text

    async def approve(self, changes: Sequence[Diff]) -> None:
        """Record that the user saw and allowed these changes of files."""
        if not (changes and self.trust_root and self.versions):
            return
        from refold.app.workspace_instructions import approve

        await anyio.to_thread.run_sync(approve, changes, self.versions, self.root)

    async def instructions_below(
        self, files: Sequence[str], known_files: Collection[str]
    ) -> "InstructionsFound | None":
        """Return instructions that the system prompt lacks, from the folders of these files.

        `known_files` are instructions that the model has already got. Return None if the
        folders have no other instructions.
        """
        if not (self.trust_root and self._settings.instructions):
            return None
        already_read = folder_chain(self._directory, self.root)
        file_folders = {os.path.dirname(file) for file in files}
        trusted_folders = {
            folder
            for file_folder in file_folders - self._searched
            if below(file_folder, self.trust_root)
            for folder in folder_chain(file_folder, self.root)
            if below(folder, self.trust_root)
        }
        new_folders = trusted_folders.difference(already_read, self._searched)
        if not new_folders:
            return None
        from refold.app.workspace_instructions import instructions_of

        read_trusted = partial(
            read,
            home=self._home,
            why_unreadable=self._why_unreadable_now,
            trusted=self.trusted_text,
        )
        outermost_first = sorted(new_folders, key=len)
        versions = self.versions
        known_changes = [change.path for change in versions.changes] if versions else []
        found, empty_folders = await anyio.to_thread.run_sync(
            instructions_of,
            outermost_first,
            self._directory,
            self.root,
            known_files,
            read_trusted,
        )
        self._searched |= empty_folders
        news = versions.notices(self._directory, known_changes) if versions else ()
        if not (news or found.files or found.notices):
            return None
        return replace(found, notices=(*found.notices, *news))

    def _why_unreadable_now(self, real: str) -> str:
        """Return why a file may not be read now, or "".

        Without trusted versions, a file that is newer than this start may not be read, because
        a command of the agent may have written it.
        """
        try:
            if self.versions is None and os.stat(real).st_ctime > self._started:
                return "it was written since this start"
        except OSError:
            pass  # reading it reports the error
        return self._why_unreadable(real)

    def _version_notices(self, trusted: str) -> tuple[str, ...]:
        """Return notices about texts that differ from the versions that the user trusts."""
        versions = self.versions
        if versions is None:
            return (self._damaged,) if self._damaged else ()
        from refold.config.instruction_files import read_applicable, read_files

        # While these read, `text_to_send` notes the changes that `notices` then describes.
        read_applicable(
            self._directory, self.root, trusted, self._home, versions.text_to_send
        )
        read_files(versions.paths, self.root, self._home, versions.text_to_send)
        return versions.notices(self._directory)

    def _why_unreadable(self, real: str) -> str:
        """Return why instructions may not include this file, or ""."""
        secret = _secret_reason(real, self._facts) or _secret_name_reason(
            os.path.relpath(real, self.root)
        )
        return secret or self._ground.why_unreadable(Real(real))

    def _untrusted_notices(self) -> tuple[str, ...]:
        """Return a notice about files that are not read because they are not trusted.

        Return () if there are no such files.
        """
        if self._ground.trust:
            return ()
        new = untrusted_texts(self._directory, TrustedFolders(self._paths.folders))
        if not new.found:
            return ()
        return (
            f"{new.names} in {escape_name(self._directory)}: not trusted, so not read; "
            "run `refold trust add` to review and trust them, or start with --trust once",
        )

    def _preset_folders(self, trusted: str) -> tuple[PresetFolder, ...]:
        """Return the folders with presets: the nearest first, the user's own last."""
        folders = [
            os.path.join(folder, ".refold", _PROMPTS_FOLDER)
            for folder in reversed(folder_chain(self._directory, self.root))
            if trusted and below(folder, trusted)
        ]
        folders_here = [
            PresetFolder(
                path,
                escape_name(os.path.relpath(path, self._directory)),
                self.root,
                self.trusted_text,
            )
            for path in folders
        ]
        own = os.path.join(self._paths.config, _PROMPTS_FOLDER)
        return (*folders_here, PresetFolder(own, escape_name(own), "/"))


def _secret_reason(real: str, facts: Facts = _NO_FACTS) -> str:
    return _SECRET_REASON if is_protected(real, facts, writes=False) else ""


def _secret_name_reason(path: str) -> str:
    """Return why the name of a file means that it may have secrets, or "".

    The file is then kept out of the prompt.
    """
    parts = path.casefold().split("/")
    if is_protected(f"/{parts[-1]}", Facts(), writes=False):  # whatever its folder is
        return _SECRET_REASON
    if _SECRET_WORDS.intersection(parts) or re.search(_SECRET_ENDS_PATTERN, parts[-1]):
        return _SECRET_REASON
    return ""


def _describe_place(environment: Environment, place: "PlaceGreeting") -> Environment:
    """Return `environment` for a workspace elsewhere, with the facts about its place."""
    branch = place.head.removeprefix("ref: refs/heads/") if place.head else ""
    return replace(
        environment,
        directory=place.root,
        platform=place.system,
        git=Git(shorten(escape_name(branch), _MAX_BRANCH_CHARS)) if branch else None,
    )
