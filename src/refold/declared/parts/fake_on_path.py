"""Lets a fake program be found under the name of the real one, in a test."""

import contextlib
import os
from pathlib import Path
from unittest import mock

# What the program is called that the agent runs.
PROGRAM = "claude"


def in_its_place(fake: Path) -> contextlib.AbstractContextManager[object]:
    """While this is open, the fake is run instead of the real program."""
    fake.with_name(PROGRAM).symlink_to(fake)
    path = f"{fake.parent}{os.pathsep}{os.environ['PATH']}"
    return mock.patch.dict(os.environ, {"PATH": path})
