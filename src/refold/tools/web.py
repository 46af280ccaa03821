"""The tools `web_search`, `web_fetch` and `docs_lookup`: find pages, read pages, look up
packages.

They use the web through a port, which `web.client` implements. `page_text` converts pages to
text, and the results are marked as coming from outside. The dependency `judge` decides whether
a redirect is permitted.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Protocol

from anyio import to_thread
from msgspec import Meta

from refold.errors import ToolFailed
from refold.permissions.facts import Decision
from refold.place.port import Files
from refold.tools.contract import Reply, tool
from refold.values.tools import Effect

if TYPE_CHECKING:
    from refold.tools.page_text import SearchHits, WebPage

_MAX_QUERY_CHARS = 400

# Decides on a URL; the bool says whether the host of the URL resolves to a private address.
Judge = Callable[[str, bool], Decision]


class Web(Protocol):
    async def fetch(self, url: str, judge: Judge) -> "WebPage":
        """Fetch a page. Redirects that `judge` does not permit raise `ToolFailed`, as other
        failures do.
        """
        ...

    async def search(self, query: str, count: int) -> "SearchHits":
        """Return pages that the configured search service finds. Raises `ToolFailed`."""
        ...


@tool(Effect.NET)
async def web_fetch(
    url: Annotated[str, Meta(description="https://…")], *, web: Web, judge: Judge
) -> Reply:
    """Read a web page as Markdown; also text, JSON, PDF and images."""
    page = await web.fetch(url, judge)
    from refold.tools.page_text import page_reply

    return await to_thread.run_sync(page_reply, page)


@tool(Effect.NET)
async def web_search(
    query: str, count: Annotated[int, Meta(ge=1, le=20)] = 8, *, web: Web
) -> Reply:
    """Search the web: titles, addresses and excerpts, for web_fetch to read."""
    if not query.strip() or len(query) > _MAX_QUERY_CHARS:
        raise ToolFailed(
            f"A query has 1 to {_MAX_QUERY_CHARS} characters: give a few words."
        )
    hits = await web.search(query, count)
    from refold.tools.page_text import search_reply

    return search_reply(query, hits)


@tool(Effect.LOOK)
async def docs_lookup(
    package: str,
    query: Annotated[str, Meta(description="a name in it, or words; else its readme")] = "",
    *,
    files: Files,
) -> Reply:
    """Documentation of an installed Python or npm package: version, readme, signatures; else the sites that may have it."""
    from refold.tools.package_docs import lookup

    return await to_thread.run_sync(lookup, files, package, query)
