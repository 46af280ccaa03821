"""Adapters for four search services: Brave, Tavily, SearXNG and DuckDuckGo.

Each adapter makes the request and parses the answer. The setting `web.search` and the keys in
the environment decide which adapter is used. `client` sends the request.
"""

import html
import re
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from typing import Literal, Protocol, TypeAlias, TypeVar
from urllib.parse import parse_qs, quote_plus, urlsplit

import msgspec
from msgspec import Struct

from refold.errors import ToolFailed
from refold.tools.page_text import SearchHits, WebHit

T = TypeVar("T")
Service: TypeAlias = Literal["auto", "brave", "tavily", "searxng", "duckduckgo"]


class SearchRequest(Struct, frozen=True):
    """A request to a search service: a POST of JSON if it has a `body`, otherwise a GET."""

    url: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None


class Engine(Protocol):
    """An adapter for one search service.

    `hits` parses an answer, and raises `ToolFailed` if it cannot.
    """

    @property
    def name(self) -> str:
        """Return the name of the service for messages."""
        ...

    def request(self, query: str, count: int) -> SearchRequest:
        """Return the request for `query`. Not all services can be asked for `count` hits."""
        ...

    def hits(self, content: bytes) -> Sequence[WebHit]:
        """Return the hits in an answer; none if nothing was found."""
        ...

    def refusal(self, status: int) -> str:
        """Return why the service answers with this status; "" if the status does not say."""
        ...


class Brave(Struct, frozen=True):
    key: str
    base: str = "https://api.search.brave.com"
    name: str = "Brave Search"

    def request(self, query: str, count: int) -> SearchRequest:
        """Return a GET, with the query in its address and the key in a header."""
        url = f"{self.base}/res/v1/web/search?q={quote_plus(query)}&count={count}"
        headers = (("accept", "application/json"), ("x-subscription-token", self.key))
        return SearchRequest(url, headers)

    def hits(self, content: bytes) -> Sequence[WebHit]:
        """Return the hits; none if the answer has no part about web pages."""
        answer = _decode(content, _BraveAnswer, self.name)
        return [
            WebHit(
                _without_tags(hit.title),
                hit.url,
                _without_tags(hit.description),
                hit.age or "",
            )
            for hit in (answer.web.results if answer.web else ())
        ]

    def refusal(self, status: int) -> str:
        return _key_problem(status, self.name, "BRAVE_API_KEY", (401, 403, 422))


class Tavily(Struct, frozen=True):
    key: str
    base: str = "https://api.tavily.com"
    name: str = "Tavily"

    def request(self, query: str, count: int) -> SearchRequest:
        """Return a POST, with the query in its body and the key in a header."""
        body = msgspec.json.encode({"query": query, "max_results": count})
        return SearchRequest(
            f"{self.base}/search",
            (("content-type", "application/json"), ("authorization", f"Bearer {self.key}")),
            body,
        )

    def hits(self, content: bytes) -> Sequence[WebHit]:
        answer = _decode(content, _TavilyAnswer, self.name)
        return [
            WebHit(hit.title, hit.url, hit.content, hit.published_date or "")
            for hit in answer.results
        ]

    def refusal(self, status: int) -> str:
        return _key_problem(status, self.name, "TAVILY_API_KEY", (401, 403))


class SearXng(Struct, frozen=True):
    base: str
    name: str = "SearXNG"

    def request(self, query: str, count: int) -> SearchRequest:
        """Return a GET. An instance cannot be asked for a number of hits."""
        return SearchRequest(
            f"{self.base.rstrip('/')}/search?q={quote_plus(query)}&format=json"
        )

    def hits(self, content: bytes) -> Sequence[WebHit]:
        answer = _decode(content, _SearXngAnswer, self.name)
        return [
            WebHit(hit.title, hit.url, hit.content or "", hit.publishedDate or "")
            for hit in answer.results
        ]

    def refusal(self, status: int) -> str:
        """Return the cause of status 403; "" for every other status."""
        if status != 403:
            return ""
        return (
            "SearXNG gives no JSON: add json to search.formats in the settings.yml of "
            "the instance in SEARXNG_URL"
        )


class DuckDuckGo(Struct, frozen=True):
    """Reads DuckDuckGo's page for browsers without JavaScript, because it has no API."""

    base: str = "https://html.duckduckgo.com"
    name: str = "DuckDuckGo"

    def request(self, query: str, count: int) -> SearchRequest:
        return SearchRequest(f"{self.base}/html/?q={quote_plus(query)}")

    def hits(self, content: bytes) -> Sequence[WebHit]:
        """Return the hits; none if the page says so. Raises `ToolFailed` for any other page."""
        text = content.decode(errors="replace")
        if "anomaly-modal" in text or "challenge-form" in text:
            raise ToolFailed(_PROOF_WANTED)
        reader = _DuckDuckGoPage()
        reader.feed(text)
        if not reader.hits and "no-results" not in text and "No results" not in text:
            raise ToolFailed(f"{self.name} answered with a page that cannot be read.")
        return reader.hits

    def refusal(self, status: int) -> str:
        return _PROOF_WANTED.rstrip(".") if status in (202, 403) else ""


_PROOF_WANTED = (
    "DuckDuckGo wants proof that a person searches: try later, or set BRAVE_API_KEY, "
    "TAVILY_API_KEY or SEARXNG_URL to use another service."
)


def choose_engine(service: Service, environ: Mapping[str, str]) -> Engine:
    """Return the adapter for `service`.

    For "auto", return the first service whose variable is set in `environ`, or else DuckDuckGo,
    which needs none. Raises `ToolFailed` if the variable of a chosen service is not set.
    """
    usable = dict[str, Engine]()
    if key := environ.get("BRAVE_API_KEY", ""):
        usable["brave"] = Brave(key)
    if key := environ.get("TAVILY_API_KEY", ""):
        usable["tavily"] = Tavily(key)
    if url := environ.get("SEARXNG_URL", ""):
        usable["searxng"] = SearXng(url)
    usable["duckduckgo"] = DuckDuckGo()
    if service == "auto":
        return next(iter(usable.values()))
    if service not in usable:
        raise ToolFailed(
            f"The setting web.search is {service!r}, but {_KEY_VARIABLES[service]} is not set."
        )
    return usable[service]


_KEY_VARIABLES = {
    "brave": "BRAVE_API_KEY",
    "tavily": "TAVILY_API_KEY",
    "searxng": "SEARXNG_URL",
}


def parse_hits(engine: Engine, status: int, content: bytes, count: int) -> SearchHits:
    """Return the first `count` web addresses that a search service found.

    `content` is the body of its answer. Raises `ToolFailed` for any status but 200 and for a
    body that cannot be parsed.
    """
    if status == 429:
        raise ToolFailed(f"{engine.name} takes no more searches now: wait, or use another.")
    if status != 200:
        why = engine.refusal(status) or f"{engine.name} answered with status {status}"
        raise ToolFailed(f"{why}.")
    usable = [hit for hit in engine.hits(content) if hit.url.startswith(_WEB_SCHEMES)]
    return SearchHits(engine.name, tuple(usable[:count]))


_WEB_SCHEMES = ("https://", "http://")


def _key_problem(status: int, name: str, variable: str, statuses: tuple[int, ...]) -> str:
    """Return a clause that says that the key was refused; "" for another `status`.

    `statuses` are those with which the service `name` refuses the key in `variable`.
    """
    if status not in statuses:
        return ""
    return f"{name} refuses the key in {variable} (status {status})"


class _BraveHit(Struct):
    title: str
    url: str
    description: str = ""
    age: str | None = None


class _BraveWeb(Struct):
    results: list[_BraveHit] = []


class _BraveAnswer(Struct):
    web: _BraveWeb | None = None


class _TavilyHit(Struct):
    title: str
    url: str
    content: str = ""
    published_date: str | None = None


class _TavilyAnswer(Struct):
    results: list[_TavilyHit]


class _SearXngHit(Struct):
    title: str
    url: str
    content: str | None = None
    publishedDate: str | None = None


class _SearXngAnswer(Struct):
    results: list[_SearXngHit]


def _decode(content: bytes, form: type[T], name: str) -> T:
    """Return the JSON in `content` as a `form`. Raises `ToolFailed` if it is anything else."""
    try:
        return msgspec.json.decode(content, type=form)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ToolFailed(f"{name} answered with what cannot be read: {error}.") from error


def _without_tags(text: str) -> str:
    """Return `text` without the tags with which services highlight words of the query."""
    return html.unescape(re.sub(r"</?[a-z]+>", "", text))


class _DuckDuckGoPage(HTMLParser):
    """Collects the hits in a page of DuckDuckGo.

    Each is a link of the class result__a, followed by its text in a result__snippet.
    """

    def __init__(self) -> None:
        super().__init__()
        self.hits = list[WebHit]()
        # The tag and the class of the open element whose text is collected, or "".
        self._tag, self._kind = "", ""
        self._url = ""  # of the last title
        self._text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin to collect text if the tag begins the title or the text of a hit."""
        attributes = {name: value or "" for name, value in attrs}
        classes = attributes.get("class", "").split()
        for kind in ("result__a", "result__snippet"):
            if kind in classes and tag in ("a", "div"):
                self._tag, self._kind, self._text = tag, kind, []
                if kind == "result__a":
                    self._url = _target(attributes.get("href", ""))

    def handle_data(self, data: str) -> None:
        if self._kind:
            self._text.append(data)

    def handle_endtag(self, tag: str) -> None:
        """At the end of a title, add a hit; at the end of a text, add it to the last hit."""
        if not self._kind or tag != self._tag:
            return
        text = " ".join("".join(self._text).split())
        if self._kind == "result__a" and self._url:  # "" for an advertisement
            self.hits.append(WebHit(text, self._url, "", ""))
        elif self._kind == "result__snippet" and self._url and self.hits:
            self.hits[-1] = msgspec.structs.replace(self.hits[-1], text=text)
        self._kind = ""


def _target(href: str) -> str:
    """Return the address to which a link of DuckDuckGo's page leads; "" for an advertisement.

    Most links lead to a page of DuckDuckGo that counts clicks, and have the real address in the
    parameter `uddg`.
    """
    parts = urlsplit(f"https:{href}" if href.startswith("//") else href)
    is_own_page = (parts.hostname or "").endswith("duckduckgo.com")
    if not is_own_page:
        return href if parts.scheme in ("http", "https") else ""
    counts_clicks = parts.path.startswith("/l/")
    if not counts_clicks:  # an advertisement
        return ""
    targets = parse_qs(parts.query).get("uddg", [""])
    return targets[0]
