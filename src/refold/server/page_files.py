"""Serves the files of the pages: HTML, scripts, styles, and what makes a page an
installable app.

All files are read once. The address of a script or style contains one hash of all files, so
a browser stores it for good and never combines files of two versions. HTML contains the
hash, so no browser may store it. A page from an earlier version of refold gets 404 for its
files, and has to be loaded again. Manifests and icons are public, because a browser
requests them without a cookie.

A hash for each file would need every script rewritten, or an import map that the content
policy forbids.
"""

import hashlib
import posixpath
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import TypeAlias

import msgspec
from fastapi import FastAPI, Response
from starlette.exceptions import HTTPException

PAGE_FILES: Mapping[str, str] = {"/": "user/index.html", "/dev": "developer/index.html"}
_MANIFEST_PAGES: Mapping[str, tuple[str, str, str]] = {  # page, name, colour
    "/refold.webmanifest": ("/", "refold", "#f6f5ec"),
    "/developer.webmanifest": ("/dev", "refold developer", "#0e1114"),
}
_ICON_SIZES: Mapping[str, tuple[str, str]] = {  # sizes, purpose
    "/icon.svg": ("any", "any"),
    "/icon-192.png": ("192x192", "any"),
    "/icon-512.png": ("512x512", "any"),
    "/icon-maskable-512.png": ("512x512", "maskable"),
}
_TERMINAL_FILES = ("developer/terminal", "shared/vendor/xterm", "shared/style_element")
_HAS_TERMINAL, _HAS_PEOPLE = b"<html data-terminal ", b"<html data-people "
PUBLIC_FILES = (*_MANIFEST_PAGES, *_ICON_SIZES)  # paths that need no token
_MEDIA_TYPES: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml", ".png": "image/png",
    ".woff2": "font/woff2", ".json": "application/json", ".txt": "text/plain; charset=utf-8",
}  # fmt: skip
_MANIFEST_TYPE = "application/manifest+json"
_FOR_GOOD = {"cache-control": "private, max-age=31536000, immutable"}
_FOR_A_DAY = {"cache-control": "max-age=86400"}
_HASH_CHARS = 16
# The relative path that a line of JavaScript imports, or from which it exports.
_IMPORT_PATTERN = re.compile(rb"""(?m)^(?:import|export)\b[^;]*?["'](\.[^"']+)["'];""")
Route: TypeAlias = Callable[[], Awaitable[Response]]


class PageFiles:
    """All files of the pages by their names, such as `shared/dom.js`.

    The files of terminals are included only with `terminal`. With `people`, pages show who
    is logged in, and hide facts about the server's machine.
    """

    def __init__(self, *, terminal: bool = False, people: bool = False) -> None:
        all_files = _read(files("refold.server") / "pages", prefix="")
        self._files = {
            name: data
            for name, data in all_files
            if terminal or not name.startswith(_TERMINAL_FILES)
        }
        if terminal:
            page = PAGE_FILES["/dev"]
            self._files[page] = self._files[page].replace(b"<html ", _HAS_TERMINAL)
        if people:
            for page in PAGE_FILES.values():
                self._files[page] = self._files[page].replace(b"<html ", _HAS_PEOPLE)
        digest = hashlib.sha256()
        for name, data in sorted(self._files.items()):
            digest.update(f"{name} {len(data)} ".encode() + data)
        self._hash = digest.hexdigest()[:_HASH_CHARS]
        self._pages = {path: self._html(name) for path, name in PAGE_FILES.items()}

    def page(self, path: str) -> Response:
        return Response(self._pages[path], media_type=_MEDIA_TYPES[".html"])

    def add_routes(self, app: FastAPI) -> None:
        """Add the routes of manifests, of icons, and of files below the hash of all files."""

        async def asset(version: str, name: str) -> Response:
            if version != self._hash:
                raise HTTPException(404)
            return self._respond(name, _FOR_GOOD)

        for path in _MANIFEST_PAGES:
            app.add_api_route(path, _manifest_route(path), include_in_schema=False)
        for path in _ICON_SIZES:
            app.add_api_route(path, self._icon_route(path), include_in_schema=False)
        app.add_api_route("/pages/{version}/{name:path}", asset, include_in_schema=False)

    def _html(self, name: str) -> bytes:
        """Return the HTML of a page. The addresses of other files in the HTML contain the
        hash.

        The HTML lists all scripts that the page needs. Otherwise a browser would find and
        request one after the other.
        """
        scripts = self._transitive_imports(f"{posixpath.dirname(name)}/page.js")
        preloads = (
            f'<link rel="modulepreload" href="/pages/{script}">\n' for script in scripts
        )
        data = self._files[name].replace(
            b"</head>", "".join(preloads).encode() + b"</head>"
        )
        return data.replace(b'"/pages/', f'"/pages/{self._hash}/'.encode())

    def _transitive_imports(self, script: str) -> Sequence[str]:
        """Return the scripts that this script imports, directly or through others."""
        imported = dict[str, None]()  # a set in the order of discovery
        to_read = [script]
        while to_read:
            name = to_read.pop(0)
            for path in _IMPORT_PATTERN.findall(self._files[name]):
                target = posixpath.normpath(f"{posixpath.dirname(name)}/{path.decode()}")
                if target not in imported:
                    imported[target] = None
                    to_read.append(target)
        return tuple(imported)

    def _respond(self, name: str, headers: Mapping[str, str]) -> Response:
        """Return the file `name` as a response with these headers.

        Raises a 404 error if no file has this name, or if its type is unknown.
        """
        media_type = _MEDIA_TYPES.get(posixpath.splitext(name)[1])
        if name not in self._files or media_type is None:
            raise HTTPException(404)
        return Response(self._files[name], media_type=media_type, headers=dict(headers))

    def _icon_route(self, path: str) -> Route:
        async def icon() -> Response:
            return self._respond(f"shared{path}", _FOR_A_DAY)

        return icon


def _manifest_route(path: str) -> Route:
    """Return a route that serves the manifest at `path`.

    A browser reads a manifest to install a page as an app.
    """
    page, name, colour = _MANIFEST_PAGES[path]
    icons = [
        {"src": icon, "sizes": sizes, "purpose": purpose,
         "type": _MEDIA_TYPES[posixpath.splitext(icon)[1]]}
        for icon, (sizes, purpose) in _ICON_SIZES.items()
    ]  # fmt: skip
    data = msgspec.json.encode({
        "id": page, "start_url": page, "scope": "/", "name": name, "short_name": name,
        "display": "standalone", "background_color": colour, "theme_color": colour,
        "icons": icons,
    })  # fmt: skip

    async def manifest() -> Response:
        return Response(data, media_type=_MANIFEST_TYPE, headers=dict(_FOR_A_DAY))

    return manifest


def _read(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of each file in `folder` and below it.

    A name is the path below `folder`, with `prefix` in front.
    """
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _read(entry, f"{prefix}{entry.name}/")
        elif not entry.name.startswith("."):
            yield f"{prefix}{entry.name}", entry.read_bytes()
