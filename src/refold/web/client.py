"""Reads one web page, within limits of time and size, and from public addresses only.

Names are resolved here, the IP addresses are checked, and the connection goes to a checked one:
a name that leads elsewhere a moment later changes nothing. Every redirect is judged like the first
address. `provider.http` sends the requests, `permissions` judges,
`robots` reads robots.txt, `search` knows the search services, and `tools.page_text` makes text of a page.
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
from refold.values.web_address import WebAddress, is_private, joined, web_address
from refold.web.robots import Robots, robots
from refold.web.search import Engine, read

AGENT = "refold"

_ACCEPT = (
    "text/markdown, text/html;q=0.9, application/json;q=0.9, text/plain;q=0.9, */*;q=0.5"
)
_HEADERS = {
    "user-agent": AGENT,
    "accept": _ACCEPT,
    "accept-encoding": "gzip, deflate",
    "connection": "close",
}
_REDIRECTS = (301, 302, 303, 307, 308)
_INDEX_SECONDS = 3.0
_KNOWN_SITES = 64  # robots.txt files that are remembered


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
    """Of one session. Keeps no cookies and no connections."""

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
        """Raises `ToolFailed` in one sentence."""
        seconds = self._limits.seconds
        with anyio.move_on_after(seconds):
            return await self._followed(url, judge)
        raise ToolFailed(f"{url} took more than {seconds:g} s in all: nothing was kept.")

    async def search(self, found: Engine, query: str, count: int) -> SearchHits:
        """Ask a search service. Its address is not judged: the user has chosen it."""
        wanted = found.request(query, count)
        request = HttpRequest(_read(wanted.url), wanted.headers, wanted.body)
        with anyio.move_on_after(self._limits.seconds):
            answer = await self._asked(request, None, self._limits.size)
            if not answer.whole:
                raise ToolFailed(f"{found.name} answered with too much to read.")
            return read(found, answer.start.status, answer.content, count)
        raise ToolFailed(
            f"{found.name} took more than {self._limits.seconds:g} s to answer."
        )

    async def _followed(self, url: str, judge: Judge) -> WebPage:
        where = _read(url)
        passed = list[str]()
        while True:
            await self._check_robots(where, judge)
            answer = await self._asked(HttpRequest(where), judge, self._limits.size)
            if answer.start.status not in _REDIRECTS:
                page = _page(where, answer, passed)
                index = await self._index(where, judge) if where.target == "/" else ""
                return replace(page, index=index)
            if len(passed) == self._limits.redirects:
                raise ToolFailed(
                    f"{url} redirects more than {self._limits.redirects} times, at last to "
                    f"{where}: nothing was read."
                )
            passed.append(str(where))
            where = _next(where, answer.start, judge)

    async def _index(self, site: WebAddress, judge: Judge) -> str:
        """The address of the site's llms.txt, which lists its pages for models; or ""."""
        file = WebAddress(site.scheme, site.host, site.port, "/llms.txt")
        if judge(str(file), False).verdict != "allow":
            return ""
        with anyio.move_on_after(_INDEX_SECONDS), suppress(ToolFailed):
            await self._check_robots(file, judge)
            answer = await self._asked(HttpRequest(file), judge, self._limits.robots)
            kind = answer.start.headers.get("content-type", "").partition(";")[0].strip()
            # Many sites send their front page for what they do not have.
            if answer.start.status == 200 and kind in ("text/plain", "text/markdown"):
                return str(file)
        return ""

    async def _check_robots(self, where: WebAddress, judge: Judge) -> None:
        if not self._obeys:
            return
        found = self._sites.get(where.origin)
        if found is None:
            found = await self._robots(where, judge)
            if len(self._sites) >= _KNOWN_SITES:
                del self._sites[next(iter(self._sites))]
            self._sites[where.origin] = found
        if not found.allows(where.target):
            raise ToolFailed(
                f"{where} was not read: {where.origin}/robots.txt asks programs to keep "
                "out. The setting web.robots = false ignores that."
            )

    async def _robots(self, where: WebAddress, judge: Judge) -> Robots:
        file = WebAddress(where.scheme, where.host, where.port, "/robots.txt")
        limit = self._limits
        for _ in range(limit.redirects):
            answer = await self._asked(HttpRequest(file), judge, limit.robots)
            if answer.start.status not in _REDIRECTS:
                break
            try:
                file = _next(file, answer.start, judge)
            except ToolFailed:  # as if there were none
                return Robots()
        else:
            return Robots()
        if answer.start.status != 200:
            return Robots()
        return robots(answer.content.decode(errors="replace"), AGENT)

    async def _asked(
        self, request: HttpRequest, judge: Judge | None, limit: int
    ) -> _Answer:
        """One request and its answer, of which at most `limit` bytes are read.

        Headers of the request are sent in addition to ours, or instead of them.
        """
        where = request.place
        headers = tuple({**_HEADERS, **dict(request.headers)}.items())
        if judge is not None:
            _refuse_denied(judge(str(where), False))
        try:
            sent = replace(request, headers=headers)
            answer = await self._client.open(sent, partial(self._addresses, judge))
            async with aclosing(answer):
                if answer.reply.status != 200:
                    return _Answer(answer.reply)
                return _Answer(answer.reply, *await answer.content(limit))
        except AddressRefused as error:
            raise ToolFailed(f"Refused: {error}.") from error
        except Broken as error:
            raise ToolFailed(f"{where.origin} {error}.") from error

    async def _addresses(self, judge: Judge | None, where: WebAddress) -> Sequence[str]:
        """Those of a host, if they are public or a rule permits them to be private."""
        addresses = await self._resolve(where.host, where.port)
        if judge is not None and any(map(is_private, addresses)):
            _refuse_denied(judge(str(where), True))
            check_addresses(where.host, addresses, kinds_of_users_host(where.host))
        return addresses


def _page(where: WebAddress, answer: _Answer, passed: Sequence[str]) -> WebPage:
    status = answer.start.status
    if status != 200:
        raise ToolFailed(f"{where} answered with status {status}{_meaning(status)}.")
    kind, _, rest = answer.start.headers.get("content-type", "").partition(";")
    charset = ""
    for each in rest.split(";"):
        name, _, value = each.partition("=")
        if name.strip().lower() == "charset":
            charset = value.strip().strip("'\"").lower()
    kind = kind.strip().lower()
    return WebPage(str(where), kind, charset, answer.content, answer.whole, tuple(passed))


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


def _next(where: WebAddress, start: ResponseStart, judge: Judge) -> WebAddress:
    """Where a redirect leads. A host that was not approved is left to another call."""
    location = start.headers.get("location", "")
    if not location:
        raise ToolFailed(f"{where} redirects and does not say where.")
    try:
        found = joined(where, location)
    except ValueError as error:
        raise ToolFailed(f"{where} redirects, but {error}.") from error
    decision = judge(str(found), False)
    _refuse_denied(decision)
    if found.host != where.host and decision.verdict != "allow":
        raise ToolFailed(
            f"{where} redirects to another host, {found}. Nothing was read from there: call "
            "web_fetch with that address if it is meant."
        )
    if where.scheme == "https" and found.scheme == "http":
        raise ToolFailed(
            f"{where} redirects to {found}, without encryption. Nothing was read from there."
        )
    return found


def _refuse_denied(decision: Decision) -> None:
    if decision.verdict == "deny":
        raise ToolFailed(f"Refused: {decision.reason}. Nothing was read from there.")
