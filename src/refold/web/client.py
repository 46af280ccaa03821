"""Reads one web page, within limits of time and size, and from public addresses only.

Names are resolved here, the IP addresses are checked, and the connection goes to a checked one:
a name that leads elsewhere a moment later changes nothing. Every redirect is judged like the first
address. `provider.http` sends the requests, `permissions` judges,
`robots` reads robots.txt, `search` knows the search services, and `tools.page_text` makes text of a page.

A user is not asked about a private address, since the name in the question says nothing: an
allow rule must name the host without `*`. Checking the name before the call would not hold,
because the connection could lead to another address. A redirect that would ask ends the
call, and a second call asks with the real address. Behind a proxy, which resolves names
itself, the check sees only what this machine resolves.
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
from refold.web.search import Engine, read

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


class FetchLimits(Struct, frozen=True):
    """What one page may take, redirects and robots.txt included."""

    seconds: float = 30.0
    size: int = 5_000_000  # bytes, unpacked
    redirects: int = 5
    robots: int = 500_000  # bytes of a robots.txt that are read


class _Answer(Struct, frozen=True):
    start: ResponseStart
    content: bytes = b""
    whole: bool = True


class WebClient:
    """The web client of one session. It keeps no cookies and no connections."""

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        obey_robots: bool = True,
        limits: FetchLimits | None = None,
        resolve: Resolve = resolve,
    ) -> None:
        self._obeys, self._resolve = obey_robots, resolve
        self._limits = limits or FetchLimits()
        seconds = self._limits.seconds
        self._client = HttpClient(environ, Bounds(seconds, seconds))
        self._sites = dict[str, Robots]()

    async def fetch(self, url: str, judge: Judge) -> WebPage:
        """Fetch a page. Raises `ToolFailed` in one sentence."""
        seconds = self._limits.seconds
        with anyio.move_on_after(seconds):
            return await self._follow_redirects(url, judge)
        raise ToolFailed(f"{url} took more than {seconds:g} s in all: nothing was kept.")

    async def search(self, engine: Engine, query: str, count: int) -> SearchHits:
        """Ask a search service. Its address is not judged: the user has chosen it."""
        wanted = engine.request(query, count)
        request = HttpRequest(_read(wanted.url), wanted.headers, wanted.body)
        with anyio.move_on_after(self._limits.seconds):
            answer = await self._request(request, None, self._limits.size)
            if not answer.whole:
                raise ToolFailed(f"{engine.name} answered with too much to read.")
            return read(engine, answer.start.status, answer.content, count)
        raise ToolFailed(
            f"{engine.name} took more than {self._limits.seconds:g} s to answer."
        )

    async def _follow_redirects(self, url: str, judge: Judge) -> WebPage:
        address = _read(url)
        redirects = list[str]()
        while True:
            await self._check_robots(address, judge)
            answer = await self._request(HttpRequest(address), judge, self._limits.size)
            if answer.start.status not in _REDIRECT_STATUSES:
                page = _page(address, answer, redirects)
                index = await self._index(address, judge) if address.target == "/" else ""
                return replace(page, index=index)
            if len(redirects) == self._limits.redirects:
                raise ToolFailed(
                    f"{url} redirects more than {self._limits.redirects} times, at last to "
                    f"{address}: nothing was read."
                )
            redirects.append(str(address))
            address = _redirect_target(address, answer.start, judge)

    async def _index(self, site: WebAddress, judge: Judge) -> str:
        """The address of the site's llms.txt, which lists its pages for models; or ""."""
        file = WebAddress(site.scheme, site.host, site.port, "/llms.txt")
        if judge(str(file), False).verdict != "allow":
            return ""
        with anyio.move_on_after(_INDEX_SECONDS), suppress(ToolFailed):
            await self._check_robots(file, judge)
            answer = await self._request(HttpRequest(file), judge, self._limits.robots)
            kind = answer.start.headers.get("content-type", "").partition(";")[0].strip()
            # Many sites send their front page for what they do not have.
            if answer.start.status == 200 and kind in ("text/plain", "text/markdown"):
                return str(file)
        return ""

    async def _check_robots(self, address: WebAddress, judge: Judge) -> None:
        if not self._obeys:
            return
        rules = self._sites.get(address.origin)
        if rules is None:
            rules = await self._robots(address, judge)
            if len(self._sites) >= _MAX_KNOWN_SITES:
                del self._sites[next(iter(self._sites))]
            self._sites[address.origin] = rules
        if not rules.allows(address.target):
            raise ToolFailed(
                f"{address} was not read: {address.origin}/robots.txt asks programs to keep "
                "out. The setting web.robots = false ignores that."
            )

    async def _robots(self, address: WebAddress, judge: Judge) -> Robots:
        file = WebAddress(address.scheme, address.host, address.port, "/robots.txt")
        limit = self._limits
        for _ in range(limit.redirects):
            answer = await self._request(HttpRequest(file), judge, limit.robots)
            if answer.start.status not in _REDIRECT_STATUSES:
                break
            try:
                file = _redirect_target(file, answer.start, judge)
            except ToolFailed:  # as if there were none
                return Robots()
        else:
            return Robots()
        if answer.start.status != 200:
            return Robots()
        return parse_robots(answer.content.decode(errors="replace"), USER_AGENT)

    async def _request(
        self, request: HttpRequest, judge: Judge | None, limit: int
    ) -> _Answer:
        """One request and its answer, of which at most `limit` bytes are read.

        Headers of the request are sent in addition to ours, or instead of them.
        """
        address = request.place
        headers = tuple({**_REQUEST_HEADERS, **dict(request.headers)}.items())
        if judge is not None:
            _refuse_denied(judge(str(address), False))
        try:
            full_request = replace(request, headers=headers)
            answer = await self._client.open(full_request, partial(self._addresses, judge))
            async with aclosing(answer):
                if answer.reply.status != 200:
                    return _Answer(answer.reply)
                return _Answer(answer.reply, *await answer.content(limit))
        except AddressRefused as error:
            raise ToolFailed(f"Refused: {error}.") from error
        except Broken as error:
            raise ToolFailed(f"{address.origin} {error}.") from error

    async def _addresses(self, judge: Judge | None, address: WebAddress) -> Sequence[str]:
        """The addresses of a host, if they are public or a rule permits private ones."""
        addresses = await self._resolve(address.host, address.port)
        if judge is not None and any(map(is_private, addresses)):
            _refuse_denied(judge(str(address), True))
            check_addresses(address.host, addresses, kinds_of_users_host(address.host))
        return addresses


def _page(address: WebAddress, answer: _Answer, redirects: Sequence[str]) -> WebPage:
    status = answer.start.status
    if status != 200:
        raise ToolFailed(f"{address} answered with status {status}{_meaning(status)}.")
    kind, _, rest = answer.start.headers.get("content-type", "").partition(";")
    charset = ""
    for parameter in rest.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            charset = value.strip().strip("'\"").lower()
    kind = kind.strip().lower()
    return WebPage(
        str(address), kind, charset, answer.content, answer.whole, tuple(redirects)
    )


def _meaning(status: int) -> str:
    from http import HTTPStatus

    try:
        return f" ({HTTPStatus(status).phrase})"
    except ValueError:
        return ""


def _read(url: str) -> WebAddress:
    try:
        return web_address(url)
    except ValueError as error:
        raise ToolFailed(f"{str(error)[:1].upper()}{str(error)[1:]}.") from error


def _redirect_target(address: WebAddress, start: ResponseStart, judge: Judge) -> WebAddress:
    """Where a redirect leads. A host that was not approved is left to another call."""
    location = start.headers.get("location", "")
    if not location:
        raise ToolFailed(f"{address} redirects and does not say where.")
    try:
        target = join_address(address, location)
    except ValueError as error:
        raise ToolFailed(f"{address} redirects, but {error}.") from error
    decision = judge(str(target), False)
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
