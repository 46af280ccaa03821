"""Opens a page in the user's browser, without showing its address to other users.

It starts a program and waits for nothing. `cli.serve` opens the page of its server with it,
`cli.mcp_login` the page of an authorization server, and `form_prompt` an address of an MCP server.
"""

import subprocess
from collections.abc import Mapping
from html import escape
from pathlib import Path

from refold.programs import Programs, start
from refold.safe_open import create_file

NO_BROWSER = "no program was found that opens a page: open the link above yourself"
_REDIRECT_PAGE = '<!doctype html><meta http-equiv="refresh" content="0; url={link}">\n'


def open_page(
    link: str, redirect_file: Path, environ: Mapping[str, str]
) -> subprocess.Popen[bytes] | None:
    """Open the link. Return None if no program for that was found; then show `NO_BROWSER`.

    Other users can see the arguments of a program, and the link contains a key. So the
    browser gets `redirect_file`, which redirects to it and only its owner can read.
    """
    known = Programs(environ)
    for name in (environ.get("BROWSER", ""), "xdg-open", "open", "wslview"):
        if name and (program := known.find(name)):
            redirect_file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            redirect_file.unlink(missing_ok=True)
            create_file(redirect_file, _REDIRECT_PAGE.format(link=escape(link)).encode())
            return start(
                [program, str(redirect_file)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
    return None
