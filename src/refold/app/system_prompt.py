"""Builds the parts of a session's system prompt.

It reads the folders (instructions, presets, the state of git) and whether the user trusts
them, once for each opening of a session: so the beginning of each request stays the same,
and prompt caches stay valid. `prompts/` cuts and joins the texts; memory, skills and agents
supply theirs.
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

SHELL_NAME = "bash"  # commands run in it
_PROMPTS_FOLDER = "prompts"
_MAX_BRANCH_CHARS = 72
_SECRET_REASON = "it may contain secrets"
_NO_FACTS = Facts()  # protected by its name alone
_SECRET_WORDS = frozenset(
    (".git", ".git-credentials", ".npmrc", ".yarnrc", ".yarnrc.yml", ".envrc")
)
_SECRET_ENDS_PATTERN = r"\.(?:env|tfstate|tfvars)$"


class SessionGround(Struct, frozen=True, kw_only=True):
    """Where a session works. `roots` are the directories of its workspace, as real paths.

    With `trust` the folder counts as trusted for this run; `like` is the trusted directory that
    it is a worktree of, whose versions of instructions are used. `why_unreadable` says why a file may
    not be read, or "". `elsewhere` describes the place of the workspace, if it is not here.
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
    prompt: str = ""  # an agent's own, replaces that of the preset
    own: str = ""  # the user's, replaces both
    memory: str = ""
    skills: str = ""
    agents: str = ""
    more: str = ""  # added by the user
    schema: Raw | None = None
    small: bool = False
    window: int = 0  # 0: unknown


class _Found(Struct, frozen=True):
    environment: str
    environment_small: str
    instructions: Instructions
    notices: tuple[str, ...]


class SystemPromptBuilder:
    """Builds system prompts. One is made for each opened session and each place of work."""

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
        self._own = Facts(
            own=paths.own,
            trees=user_trees(paths, ground.roots),
        )
        self._trusted: str | None = None
        self._damaged = ""
        self._searched = frozenset[str]()  # folders without instructions
        self._started = ground.now()
        self._found: _Found | None = None

    @property
    def trust_root(self) -> str:
        """The real path of the trusted folder: files in and below it count. "" without one."""
        if self._trusted is None:
            self._trusted = self._find_trust_root()
        return self._trusted

    @property
    def trust_source(self) -> str:
        """The directory whose trusted versions also apply in its worktrees; "" with --trust."""
        return self._ground.like or ("" if self._ground.trust else self._directory)

    def reread(self) -> None:
        """Read the files again for the next text, because the user trusts other versions now."""
        self._found, self._searched = None, frozenset[str]()
        vars(self).pop("versions", None)

    def check(self) -> None:
        """Raise `BadInput` if the settings name a preset that does not exist."""
        if self._settings.preset not in BUILT_IN:
            self.preset(self._settings.preset)

    def text(self, material: PromptParts, before: SystemPromptSet) -> RenderedPrompt:
        """The system prompt of a turn. `before` is the last one that the model got.

        Raises `BadInput` for a preset that does not exist or cannot be used.
        """
        parts, small = self._read_folders(), material.small
        window = material.window or self._settings.context.default_window_tokens
        now = parts.environment_small if small else parts.environment
        rooms = {
            name: system_text.max_part_chars(name, window, small=small)
            for name in system_text.WINDOW_SHARES
        }
        asked, notices = system_text.instructions(
            parts.instructions.pieces, rooms["instructions"]
        )
        others = {"memory": material.memory, "skills": material.skills}
        others["agents"] = material.agents
        return system_text.render_prompt(
            (
                ("prompt", self._prompt(material)),
                ("environment", choose_environment(now, part_of(before, "environment"))),
                ("instructions", asked),
                *(
                    (name, system_text.cut_part(t, name, rooms[name]))
                    for name, t in others.items()
                ),
                ("more", material.more),
                ("schema", system_text.shape(material.schema)),
            ),
            notices,
        )

    def notices(self) -> tuple[str, ...]:
        """Notices for the user: what is ignored, and why."""
        return self._read_folders().notices

    def preset(self, name: str) -> Preset:
        """The preset of this name. Raises `BadInput` if it is missing or cannot be used."""
        return preset(name, self._preset_folders(self.trust_root))

    def has_preset(self, name: str) -> bool:
        """Whether a preset of this name can be used here."""
        try:
            return name in BUILT_IN or bool(self.preset(name))
        except BadInput:
            return False

    def presets(self) -> tuple[tuple[Preset, ...], tuple[str, ...]]:
        """All presets that can be chosen here, and a sentence for each unusable one."""
        return presets(self._preset_folders(self.trust_root))

    def _prompt(self, material: PromptParts) -> str:
        if material.own or material.prompt:
            return material.own or material.prompt
        if material.small and material.preset == "coding":
            return small_system()
        return self.preset(material.preset).text

    def _read_folders(self) -> _Found:
        if self._found is None:
            trusted = self.trust_root
            resources = Environment(
                directory=self._directory,
                more=self._ground.roots[1:],
                today=time.strftime("%Y-%m-%d", time.localtime(self._ground.now())),
                platform=os.uname().sysname,
            )
            whole = replace(resources, shell=SHELL_NAME, git=git_state(self.root))
            if self._ground.elsewhere is not None:
                whole = _describe_place(whole, self._ground.elsewhere())
            asked = self._instructions(trusted)
            said = (
                *asked.notices, *self._version_notices(trusted), *shadow_notices(self._preset_folders(trusted)),
                *self._untrusted_notices(),
            )  # fmt: skip
            # A small model makes mistakes in long paths, and takes a second for each.
            small = environment(replace(resources, directory=""))
            self._found = _Found(environment(whole), small, asked, said)
        return self._found

    def _find_trust_root(self) -> str:
        if self._ground.trust:
            return self.root
        return TrustedFolders(self._paths.folders).find_trusted_above(
            self._directory, self.root
        )

    def _instructions(self, trusted: str) -> Instructions:
        own = os.path.join(self._paths.config, OWN_FILE)
        mine = Instructions()
        if os.path.lexists(own):
            # The user's own file may import any file of the user.
            read_own = read([InstructionFile(own, "/")], self._home, _secret_reason)
            pieces = tuple(replace(piece, own=True) for piece in read_own.pieces)
            mine = Instructions(pieces, read_own.notices)
        if not (trusted and self._settings.instructions):
            return mine
        files = [
            file
            for file in project_instructions(self._directory, self.root)
            if below(file.path, trusted)
            and os.path.realpath(file.path) != os.path.realpath(own)
        ]
        theirs = read(files, self._home, self._why_unreadable, self.trusted_text)
        return Instructions(
            (*mine.pieces, *theirs.pieces), (*mine.notices, *theirs.notices)
        )

    @cached_property
    def versions(self) -> "TrustedVersions | None":
        """The trusted versions of the folder's instructions; None if none are recorded."""
        ground = self._ground
        place = ground.like or self._directory
        root = root_of(place)
        known = TrustedFolders(self._paths.folders).find_trusted_above(place, root)
        if not (known and self.trust_root):
            return None
        from refold.config.instruction_files import read_all

        # Of trusted folders only.
        from refold.config.trusted_versions import TrustedVersions

        base = os.path.join(self.root, os.path.relpath(known, root))
        present = ground.trust and not ground.like
        try:
            versions = TrustedVersions(
                self._paths.data, known, os.path.normpath(base), present=present
            )
            if not versions.is_recorded:
                # It was trusted by a version of refold that recorded nothing.
                read_all(root, known, self._home, versions.text_to_send)
                versions.record_first()
        except BadInput as error:
            self._damaged = str(error)
            return None
        return versions

    def trusted_text(self, real: str, now: str) -> str | None:
        """The version of a text in the folder that the model may get, or None."""
        if self.versions is not None:
            return self.versions.text_to_send(real, now)
        return None if self._damaged else now

    async def approve(self, changes: Sequence[Diff]) -> None:
        """Record that the user saw and allowed these changes of files."""
        if not (changes and self.trust_root and self.versions):
            return
        from refold.app.workspace_instructions import approve

        await anyio.to_thread.run_sync(approve, changes, self.versions, self.root)

    async def instructions_below(
        self, files: Sequence[str], known_files: Collection[str]
    ) -> "InstructionsFound | None":
        """The instructions in the folders of these files that the system prompt does not have."""
        if not (self.trust_root and self._settings.instructions):
            return None
        top = folder_chain(self._directory, self.root)
        folders = {os.path.dirname(file) for file in files}
        news = {
            folder
            for file in folders - self._searched
            if below(file, self.trust_root)
            for folder in folder_chain(file, self.root)
            if folder not in top and below(folder, self.trust_root)
        } - self._searched
        if not news:
            return None
        from refold.app.workspace_instructions import instructions_of

        reading = partial(read, home=self._home, why_unreadable=self._unread_now)
        reading = partial(reading, trusted=self.trusted_text)
        ordered = sorted(news, key=len)
        read_instructions = partial(
            instructions_of, ordered, self._directory, self.root, known_files, reading
        )
        versions = self.versions
        paths = [file.path for file in versions.changes] if versions else []
        texts, empty = await anyio.to_thread.run_sync(read_instructions)
        self._searched |= empty
        more = versions.notices(self._directory, paths) if versions else ()
        if not (more or texts.files or texts.notices):
            return None
        return replace(texts, notices=(*texts.notices, *more))

    def _unread_now(self, real: str) -> str:
        """Why a file may not be read now, or "".

        Without recorded versions, a file newer than the start may be from a command.
        """
        try:
            if self.versions is None and os.stat(real).st_ctime > self._started:
                return "it was written since this start"
        except OSError:
            pass  # reading it reports the error
        return self._why_unreadable(real)

    def _version_notices(self, trusted: str) -> tuple[str, ...]:
        """Notices about the texts of which the user trusts another version."""
        versions = self.versions
        if versions is None:
            return (self._damaged,) if self._damaged else ()
        from refold.config.instruction_files import read_applicable, read_files

        read_applicable(
            self._directory, self.root, trusted, self._home, versions.text_to_send
        )
        read_files(versions.paths, self.root, self._home, versions.text_to_send)
        return versions.notices(self._directory)

    def _why_unreadable(self, real: str) -> str:
        secret = _secret_reason(real, self._own) or _secret_name_reason(
            os.path.relpath(real, self.root)
        )
        return secret or self._ground.why_unreadable(Real(real))

    def _untrusted_notices(self) -> tuple[str, ...]:
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
        """The folders with presets: the nearest first, then the user's."""
        folders = [
            os.path.join(folder, ".refold", _PROMPTS_FOLDER)
            for folder in reversed(folder_chain(self._directory, self.root))
            if trusted and below(folder, trusted)
        ]
        theirs = [
            PresetFolder(
                path,
                escape_name(os.path.relpath(path, self._directory)),
                self.root,
                self.trusted_text,
            )
            for path in folders
        ]
        own = os.path.join(self._paths.config, _PROMPTS_FOLDER)
        return (*theirs, PresetFolder(own, escape_name(own), "/"))


def _secret_reason(real: str, facts: Facts = _NO_FACTS) -> str:
    return _SECRET_REASON if is_protected(real, facts, writes=False) else ""


def _secret_name_reason(way: str) -> str:
    """The reason to keep a file that may hold secrets out of the prompt, or ""."""
    parts = way.casefold().split("/")
    if is_protected(f"/{parts[-1]}", Facts(), writes=False):  # in any folder
        return _SECRET_REASON
    return (
        _SECRET_REASON
        if _SECRET_WORDS.intersection(parts) or re.search(_SECRET_ENDS_PATTERN, parts[-1])
        else ""
    )


def _describe_place(environment: Environment, place: "PlaceGreeting") -> Environment:
    """The environment of a workspace elsewhere."""
    branch = place.head.removeprefix("ref: refs/heads/") if place.head else ""
    return replace(
        environment,
        directory=place.root,
        platform=place.system,
        git=Git(shorten(escape_name(branch), _MAX_BRANCH_CHARS)) if branch else None,
    )
