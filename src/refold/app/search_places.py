"""Determines the folders in which skills, templates and agents are searched.

It also tells whether a folder may have files that configure MCP servers or hooks. It is a
separate module because shell completion waits for it, and must not load all of `workspace`.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from refold.config.paths import HOOK_FILES, MCP_FILES, Paths, home
from refold.prompts.repository import root_of
from refold.skills.directories import SkillScope
from refold.values.text import TrustedText, trust_unchanged

USER_MCP_FILE = "mcp_servers.json"
USER_HOOKS_FILE = "hooks.json"


def has_mcp_files(directory: str, paths: Paths) -> bool:
    """Whether there is a file that may configure MCP servers for this directory.

    It must be fast, because every start calls it.
    """
    below = (os.path.join(directory, name) for name in MCP_FILES)
    return any(map(os.path.lexists, (str(paths.config / USER_MCP_FILE), *below)))


def has_hook_files(directory: str, paths: Paths) -> bool:
    """Whether there is a file that may configure hooks for this directory.

    It must be fast, because every start calls it.
    """
    below = (os.path.join(directory, name) for name in HOOK_FILES)
    return any(map(os.path.lexists, (str(paths.config / USER_HOOKS_FILE), *below)))


def skill_scope(
    directory: Path | str,
    paths: Paths,
    environ: Mapping[str, str],
    *,
    trusted: str,
    trusted_text: TrustedText = trust_unchanged,
) -> SkillScope:
    """Return the folders in which skills and templates for a directory are searched.

    `trusted` is the trusted folder, or "" if none is trusted. `trusted_text` returns the
    version of a file that may be used.
    """
    real = os.path.realpath(directory)
    return SkillScope(
        directory=real,
        repository=root_of(real),
        home=home(environ),
        config=os.path.realpath(paths.config),
        trusted=trusted,
        trusted_text=trusted_text,
    )


def scope_with_trust(
    directory: Path | str, paths: Paths, environ: Mapping[str, str], *, trust: bool = False
) -> tuple[SkillScope, Callable[[], Sequence[str]]]:
    """Return the skill scope with the trusted versions of files, and a function.

    The function returns notices about files that have changed since they were trusted. Call it
    after the files were read. With `trust`, files are used in their present version.
    """
    from refold.config.trusted_folders import TrustedFolders
    from refold.config.trusted_versions import TrustedVersions

    real = os.path.realpath(directory)
    root = root_of(real)
    known = TrustedFolders(paths.folders).find_trusted_above(real, root)
    versions = TrustedVersions(paths.data, known, present=trust) if known else None
    scope = skill_scope(
        real,
        paths,
        environ,
        trusted=root if trust else known,
        trusted_text=versions.text_to_send if versions else trust_unchanged,
    )

    def notices() -> Sequence[str]:
        """Return notices about files that have changed since they were trusted."""
        if versions is None:
            return ()
        # Omitted files are among the problems of the list.
        new = [change.path for change in versions.changes if change.trusted is None]
        return versions.notices(real, () if trust else new)

    return scope, notices
