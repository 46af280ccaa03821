"""Fetches web pages and asks search services, within limits of time and size.

Names are resolved here, the IP addresses are checked, and the connection goes to a checked
address, so a name that resolves to another address a moment later has no effect. Every redirect
is judged like the first address.

`provider.http` sends the requests, `permissions` judges addresses, `robots` parses robots.txt,
`search` has the search services, and `tools.page_text` converts pages to text.

A private address needs an allow rule that names the host without `*`. The user is not asked
about it, because the name in the question would not show where it leads. If a redirect would
need a question, the call fails, and a second call asks with the real address. Behind a proxy,
which resolves names itself, only the addresses that this machine resolves are checked.
"""

from collections.abc import Mapping, Sequence
from contextlib import aclosing, suppress
from functools import partial

import anyio
from msgspec import Struct
from msgspec.structs import replace

from refold.errors import ToolFailed
from refold.permissions.facts import Decision
from refold.provider.connect import Broken
from refold.provider.error_mapping import ResponseStart
from refold.provider.http import Bounds, HttpClient, HttpRequest
from refold.provider.resolver import (
    AddressRefused,
    Resolve,
    check_addresses,
    kinds_of_users_host,
    resolve,
)
from refold.tools.page_text import SearchHits, WebPage
from refold.tools.web import Judge
from refold.values.web_address import WebAddress, is_private, join_address, web_address
from refold.web.robots import Robots, parse_robots
from refold.web.search import Engine, parse_hits

USER_AGENT = "refold"

_ACCEPT_HEADER = (
    "text/markdown, text/html;q=0.9, application/json;q=0.9, text/plain;q=0.9, */*;q=0.5"
)
_REQUEST_HEADERS = {
    "user-agent": USER_AGENT,
    "accept": _ACCEPT_HEADER,
    "accept-encoding": "gzip, deflate",
    "connection": "close",
}
_REDIRECT_STATUSES = (301, 302, 303, 307, 308)
_INDEX_SECONDS = 3.0
_MAX_KNOWN_SITES = 64  # robots.txt files that are remembered
# Whether an address is known to be private, for a `Judge`. Before a name is resolved, it is not.
_NOT_RESOLVED, _IS_PRIVATE = False, True


class FetchLimits(Struct, frozen=True):
    """The limits for fetching one page, including its redirects and robots.txt."""

    seconds: float = 30.0
    size: int = 5_000_000  # bytes, unpacked
    redirects: int = 5
    robots: int = 500_000  # bytes of a robots.txt that are read


class _Answer(Struct, frozen=True):
    """The answer to one request. `whole` is False if `content` was cut at the limit.

    `content` is empty if the status is not 200.
    """

    start: ResponseStart
    content: bytes = b""
    whole: bool = True


class WebClient:
    """Fetches pages and asks search services for one session.

    It keeps no cookies and no connections, but remembers the robots.txt rules of sites.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        obey_robots: bool = True,
        limits: FetchLimits | None = None,
        resolve: Resolve = resolve,
    ) -> None:
        self._obeys_robots, self._resolve = obey_robots, resolve
        self._limits = limits or FetchLimits()
        seconds = self._limits.seconds
        self._client = HttpClient(environ, Bounds(seconds, seconds))
        self._sites = dict[str, Robots]()

    async def fetch(self, url: str, judge: Judge) -> WebPage:
        """Fetch a page, following redirects. Raises `ToolFailed` with one sentence.

        `judge` decides whether an address may be read. Its second argument is True if the
        address is known to lead into a private network.
        """
        seconds = self._limits.seconds
        with anyio.move_on_after(seconds):
            return await self._follow_redirects(url, judge)
        raise ToolFailed(f"{url} took more than {seconds:g} s in all: nothing was kept.")

    async def search(self, engine: Engine, query: str, count: int) -> SearchHits:
        """Ask a search service. Return at most `count` hits. Raises `ToolFailed`.

        The address of the service is not judged, because the user has chosen the service.
        """
        query_request = engine.request(query, count)
        request = HttpRequest(
            _parse_url(query_request.url), query_request.headers, query_request.body
        )
        with anyio.move_on_after(self._limits.seconds):
            answer = await self._request(request, judge=None, limit=self._limits.size)
            if not answer.whole:
                raise ToolFailed(f"{engine.name} answered with too much to read.")
            return parse_hits(engine, answer.start.status, answer.content, count)
        raise ToolFailed(
            f"{engine.name} took more than {self._limits.seconds:g} s to answer."
        )

    async def _follow_redirects(self, url: str, judge: Judge) -> WebPage:
        """Fetch a page as `fetch` does, without its time limit."""
        address = _parse_url(url)
        redirects = list[str]()
        while True:
            await self._check_robots(address, judge)
            answer = await self._request(HttpRequest(address), judge, self._limits.size)
            if answer.start.status not in _REDIRECT_STATUSES:
                page = _to_page(address, answer, redirects)
                if address.target != "/":
                    return page
                return replace(page, index=await self._llms_txt_address(address, judge))
            if len(redirects) == self._limits.redirects:
                raise ToolFailed(
                    f"{url} redirects more than {self._limits.redirects} times, at last to "
                    f"{address}: nothing was read."
                )
            redirects.append(str(address))
            address = _redirect_target(address, answer.start, judge)

    async def _llms_txt_address(self, site: WebAddress, judge: Judge) -> str:
        """Return the address of the site's llms.txt, a list of its pages for models.

        Return "" if the site has none, or if it may not be read without asking.
        """
        file = WebAddress(site.scheme, site.host, site.port, "/llms.txt")
        if judge(str(file), _NOT_RESOLVED).verdict != "allow":
            return ""
        with anyio.move_on_after(_INDEX_SECONDS), suppress(ToolFailed):
            await self._check_robots(file, judge)
            answer = await self._request(HttpRequest(file), judge, self._limits.robots)
            kind, _, _ = answer.start.headers.get("content-type", "").partition(";")
            # Many sites answer with an HTML page and status 200 for a missing file.
            is_text = kind.strip() in ("text/plain", "text/markdown")
            if answer.start.status == 200 and is_text:
                return str(file)
        return ""

    async def _check_robots(self, address: WebAddress, judge: Judge) -> None:
        """Raise `ToolFailed` if the site's robots.txt asks programs not to read `address`."""
        if not self._obeys_robots:
            return
        rules = self._sites.get(address.origin)
        if rules is None:
            rules = await self._fetch_robots(address, judge)
            if len(self._sites) >= _MAX_KNOWN_SITES:
                oldest_site = next(iter(self._sites))
                del self._sites[oldest_site]
            self._sites[address.origin] = rules
        if not rules.allows(address.target):
            raise ToolFailed(
                f"{address} was not read: {address.origin}/robots.txt asks programs to keep "
                "out. The setting web.robots = false ignores that."
            )

    async def _fetch_robots(self, address: WebAddress, judge: Judge) -> Robots:
        """Fetch the robots.txt of a site. Return its rules.

        If the site answers with an error status, too many redirects or a forbidden redirect,
        return empty rules, which allow everything. Raises `ToolFailed` if the site cannot be
        reached.
        """
        file = WebAddress(address.scheme, address.host, address.port, "/robots.txt")
        limits = self._limits
        for _ in range(limits.redirects):
            answer = await self._request(HttpRequest(file), judge, limits.robots)
            status = answer.start.status
            if status == 200:
                return parse_robots(answer.content.decode(errors="replace"), USER_AGENT)
            if status not in _REDIRECT_STATUSES:
                return Robots()
            try:
                file = _redirect_target(file, answer.start, judge)
            except ToolFailed:
                return Robots()
        return Robots()

    async def _request(
        self, request: HttpRequest, judge: Judge | None, limit: int
    ) -> _Answer:
        """Send one request. Return the answer, with at most `limit` bytes of its content.

        The content is read only if the status is 200. A header in `request` replaces our header
        of the same name. `judge` is None for an address that the user has chosen.
        """
        address = request.place
        headers = tuple({**_REQUEST_HEADERS, **dict(request.headers)}.items())
        if judge is not None:
            _refuse_denied(judge(str(address), _NOT_RESOLVED))
        try:
            full_request = replace(request, headers=headers)
            answer = await self._client.open(
                full_request, partial(self._resolve_permitted, judge)
            )
            async with aclosing(answer):
                if answer.reply.status != 200:
                    return _Answer(answer.reply)
                content, whole = await answer.content(limit)
                return _Answer(answer.reply, content, whole)
        except AddressRefused as error:
            raise ToolFailed(f"Refused: {error}.") from error
        except Broken as error:
            raise ToolFailed(f"{address.origin} {error}.") from error

    async def _resolve_permitted(
        self, judge: Judge | None, address: WebAddress
    ) -> Sequence[str]:
        """Return the IP addresses of the host of `address`.

        Raises `ToolFailed` or `AddressRefused` if an address is private and not permitted. If
        `judge` is None, all addresses are permitted.
        """
        addresses = await self._resolve(address.host, address.port)
        if judge is not None and any(map(is_private, addresses)):
            _refuse_denied(judge(str(address), _IS_PRIVATE))
            check_addresses(address.host, addresses, kinds_of_users_host(address.host))
        return addresses


def _to_page(address: WebAddress, answer: _Answer, redirects: Sequence[str]) -> WebPage:
    """Return the page that a server sent, with its media type and charset.

    Raises `ToolFailed` for any status but 200. `redirects` are the addresses before `address`.
    """
    status = answer.start.status
    if status != 200:
        raise ToolFailed(
            f"{address} answered with status {status}{_status_phrase(status)}."
        )
    content_type = answer.start.headers.get("content-type", "")
    media_type, _, parameters = content_type.partition(";")
    charset = ""
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            charset = value.strip().strip("'\"").lower()
    return WebPage(
        str(address),
        media_type.strip().lower(),
        charset,
        answer.content,
        answer.whole,
        tuple(redirects),
    )


def _status_phrase(status: int) -> str:
    """Return the name of a status, as in " (Not Found)"; "" if it has none."""
    from http import HTTPStatus

    try:
        return f" ({HTTPStatus(status).phrase})"
    except ValueError:
        return ""


def _parse_url(url: str) -> WebAddress:
    """Return the parsed address. Raises `ToolFailed` with the reason as a sentence."""
    try:
        return web_address(url)
    except ValueError as error:
        message = str(error)
        raise ToolFailed(f"{message[:1].upper()}{message[1:]}.") from error


def _redirect_target(address: WebAddress, start: ResponseStart, judge: Judge) -> WebAddress:
    """Return the address to which the server at `address` redirects.

    Raises `ToolFailed` if the answer names no valid address, or if the named address is denied,
    is on another host that needs approval, or is not encrypted although `address` is.
    """
    location = start.headers.get("location", "")
    if not location:
        raise ToolFailed(f"{address} redirects and does not say where.")
    try:
        target = join_address(address, location)
    except ValueError as error:
        raise ToolFailed(f"{address} redirects, but {error}.") from error
    decision = judge(str(target), _NOT_RESOLVED)
    _refuse_denied(decision)
    if target.host != address.host and decision.verdict != "allow":
        raise ToolFailed(
            f"{address} redirects to another host, {target}. Nothing was read from there: call "
            "web_fetch with that address if it is meant."
        )
    if address.scheme == "https" and target.scheme == "http":
        raise ToolFailed(
            f"{address} redirects to {target}, without encryption. Nothing was read from there."
        )
    return target


def _refuse_denied(decision: Decision) -> None:
    if decision.verdict == "deny":
        raise ToolFailed(f"Refused: {decision.reason}. Nothing was read from there.")
