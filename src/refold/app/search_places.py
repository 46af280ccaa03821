"""The folders around a directory in which skills, templates and agents are searched.

It is separate from `workspace` because shell completion waits for it, and needs no files,
commands or sandbox.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from refold.config.paths import Paths, home
from refold.prompts.repository import root_of
from refold.skills.directories import SkillScope


def skill_scope(
    directory: Path | str, paths: Paths, environ: Mapping[str, str], *, trusted: str
) -> SkillScope:
    """The folders in which skills and templates are searched; `trusted` is a folder, or ""."""
    real = os.path.realpath(directory)
    return SkillScope(
        directory=real,
        repository=root_of(real),
        home=home(environ),
        config=os.path.realpath(paths.config),
        trusted=trusted,
    )
