"""A mistake of ours that nobody caught: into the log, and one sentence for the person.

Where it is not to be written down, or cannot be, the person gets all of it.
"""

import os
import traceback
from collections.abc import Sequence
from contextlib import suppress

from refold.cli.flags import parse
from refold.config.load import load
from refold.config.paths import Paths, paths
from refold.config.secret_values import clean, masks_of
from refold.errors import RefoldError
from refold.logs.logbook import Logbook
from refold.views.escape import on_one_line, visible


def told(error: Exception, arguments: Sequence[str]) -> str:
    """What to tell the person who said `arguments`. Nothing secret is in it."""
    places = None
    with suppress(RefoldError):
        places = paths(os.environ)
    masks = masks_of(os.environ, places)
    whole = clean("".join(traceback.format_exception(error)), masks).rstrip()
    if places is None or not _wanted(places, arguments):
        return visible(whole)
    book = Logbook(places.state, "error", masks.mask)
    if not book.write("error", whole):
        return visible(whole)
    short = "".join(traceback.format_exception_only(error)).strip()
    what = on_one_line(clean(short, masks))[:300]
    where = on_one_line(str(book.file))
    return f"refold: this is a mistake of refold's own: {what}; all of it is in {where}"


def _wanted(places: Paths, arguments: Sequence[str]) -> bool:
    """Not where nothing is to be kept, or the log is off."""
    try:
        found = vars(parse(arguments))
        flags = {"log_level": found.get("log_level")}
        settings = load(places.settings, os.environ, flags).settings
    except RefoldError:
        return True
    return not found.get("no_session") and settings.log_level != "off"
