"""`refold config show`: every setting, its value, and where that comes from."""

import os
import sys
from argparse import Namespace
from pathlib import Path
from typing import cast

from refold.cli.out import write
from refold.config.here import load_here
from refold.config.load import flat
from refold.config.paths import paths
from refold.config.settings import Written
from refold.errors import BadInput
from refold.views.escape import on_one_line


def run(found: Namespace) -> int:
    try:
        folder = Path.cwd()
    except FileNotFoundError as error:
        raise BadInput(
            "the current directory is gone: change to one that exists"
        ) from error
    here = load_here(folder, paths(os.environ), os.environ, {})
    origins = here.loaded.origins
    for key, value in flat(here.settings).items():
        where = origins[key].origin if key in origins else "default"
        write(f"{key} = {on_one_line(_shown(key, value))}  # {on_one_line(where)}\n")
    if here.unheeded:
        sys.stderr.write(f"refold: {here.unheeded}\n")
    return 0


def _shown(key: str, value: object) -> str:
    if key.startswith("permissions."):
        return str([each.rule for each in cast("tuple[Written, ...]", value)])
    return repr(value) if isinstance(value, str) else str(value)
