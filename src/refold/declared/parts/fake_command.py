"""Lets a fake program be run instead of the user's own, in a test."""

import contextlib
from pathlib import Path
from unittest import mock

from refold.declared.parts import settings as agent


def in_its_place(fake: Path) -> contextlib.AbstractContextManager[object]:
    """While this is open, the fake is run instead of the real program."""
    arguments = [str(fake), *agent.COMMAND[1:]]
    return mock.patch.object(agent, "COMMAND", arguments)
