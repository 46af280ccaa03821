"""Opens a page in the user's browser, without showing its address to other users.

It starts a program and waits for nothing. `serve` opens the page of its server with it, and
`mcp_login` the page of an authorization server.
"""

import subprocess
from collections.abc import Mapping
from html import escape
from pathlib import Path

from refold.headless.streams import print_error
from refold.programs import Programs, start
from refold.safe_open import made

_LEADS_TO = '<!doctype html><meta http-equiv="refresh" content="0; url={link}">\n'


def open_page(
    link: str, way: Path, environ: Mapping[str, str]
) -> subprocess.Popen[bytes] | None:
    """Open the link. None, with a notice: no program for that was found.

    Other users see the arguments of a program, and the link is a key. So the browser is
    given the file `way`, which only its owner can read, and which leads to the link.
    """
    known = Programs(environ)
    for name in (environ.get("BROWSER", ""), "xdg-open", "open", "wslview"):
        if name and (program := known.find(name)):
            way.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            way.unlink(missing_ok=True)
            made(way, _LEADS_TO.format(link=escape(link)).encode())
            return start(
                [program, str(way)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
    print_error("no program was found that opens a page: open the link above yourself")
    return None
