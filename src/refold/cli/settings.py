"""`refold config show`: every setting, its value, and where that comes from."""

import os
from argparse import Namespace

from refold.cli.out import write
from refold.config.load import flat, load
from refold.config.paths import paths
from refold.views.escape import on_one_line


def run(found: Namespace) -> int:
    places = paths(os.environ)
    settings, origins = load(places.settings, os.environ, {})
    for key, value in flat(settings).items():
        where = origins[key].origin if key in origins else "default"
        shown = on_one_line(str(value) if not isinstance(value, str) else repr(value))
        write(f"{key} = {shown}  # {where}\n")
    return 0
