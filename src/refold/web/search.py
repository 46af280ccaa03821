"""Searches the web with one of four services: Brave, Tavily, SearXNG, DuckDuckGo.

Each adapter says what is asked and reads what comes back. Which one is used depends on the setting
and on the keys in the environment. `client` sends the request: the addresses here are the
service's own or the user's, so they are not judged like those that a model names.
"""

import html
import re
from collections.abc import Callable, Mapping, Sequence
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
    """A request to a search service. With a `body` it is a POST of JSON."""

    url: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None


class Engine(Protocol):
    """A search service. `hits` raises `ToolFailed` where the answer cannot be read."""

    @property
    def name(self) -> str: ...
    def request(self, query: str, count: int) -> SearchRequest: ...
    def hits(self, content: bytes) -> Sequence[WebHit]: ...
    def refusal(self, status: int) -> str:
        """Why this service answers with a status, or ""."""
        ...


class Brave(Struct, frozen=True):
    key: str
    base: str = "https://api.search.brave.com"
    name: str = "Brave Search"

    def request(self, query: str, count: int) -> SearchRequest:
        url = f"{self.base}/res/v1/web/search?q={quote_plus(query)}&count={count}"
        headers = (("accept", "application/json"), ("x-subscription-token", self.key))
        return SearchRequest(url, headers)

    def hits(self, content: bytes) -> Sequence[WebHit]:
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
        if status != 403:
            return ""
        return (
            "SearXNG gives no JSON: add json to search.formats in the settings.yml of "
            "the instance in SEARXNG_URL"
        )


class DuckDuckGo(Struct, frozen=True):
    """DuckDuckGo's page for browsers without JavaScript: it has no programming interface."""

    base: str = "https://html.duckduckgo.com"
    name: str = "DuckDuckGo"

    def request(self, query: str, count: int) -> SearchRequest:
        return SearchRequest(f"{self.base}/html/?q={quote_plus(query)}")

    def hits(self, content: bytes) -> Sequence[WebHit]:
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


def engine(service: Service, environ: Mapping[str, str]) -> Engine:
    """The chosen service, or the first whose variable is set. Raises `ToolFailed`."""
    brave, tavily = environ.get("BRAVE_API_KEY", ""), environ.get("TAVILY_API_KEY", "")
    searxng = environ.get("SEARXNG_URL", "")
    chosen: dict[str, Callable[[], Engine]] = {
        **({"brave": lambda: Brave(brave)} if brave else {}),
        **({"tavily": lambda: Tavily(tavily)} if tavily else {}),
        **({"searxng": lambda: SearXng(searxng)} if searxng else {}),
        "duckduckgo": DuckDuckGo,
    }
    if service == "auto":
        return next(iter(chosen.values()))()
    if service not in chosen:
        raise ToolFailed(
            f"The setting web.search is {service!r}, but {_KEY_VARIABLES[service]} is not set."
        )
    return chosen[service]()


_KEY_VARIABLES = {
    "brave": "BRAVE_API_KEY",
    "tavily": "TAVILY_API_KEY",
    "searxng": "SEARXNG_URL",
}


def read(engine: Engine, status: int, content: bytes, count: int) -> SearchHits:
    """Parse the answer of a search service. Raises `ToolFailed`."""
    if status == 429:
        raise ToolFailed(f"{engine.name} takes no more searches now: wait, or use another.")
    if status != 200:
        why = engine.refusal(status) or f"{engine.name} answered with status {status}"
        raise ToolFailed(f"{why}.")
    usable = [hit for hit in engine.hits(content) if hit.url.startswith(_WEB_SCHEMES)]
    return SearchHits(engine.name, tuple(usable[:count]))


_WEB_SCHEMES = ("https://", "http://")


def _key_problem(status: int, name: str, variable: str, statuses: tuple[int, ...]) -> str:
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
    try:
        return msgspec.json.decode(content, type=form)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ToolFailed(f"{name} answered with what cannot be read: {error}.") from error


def _without_tags(text: str) -> str:
    """Text of a service that marks words with tags."""
    return html.unescape(re.sub(r"</?[a-z]+>", "", text))


class _DuckDuckGoPage(HTMLParser):
    """Links of the class result__a, each followed by its result__snippet."""

    def __init__(self) -> None:
        super().__init__()
        self.hits = list[WebHit]()
        self._open, self._url, self._text = "", "", list[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        classes = attributes.get("class", "").split()
        for kind in ("result__a", "result__snippet"):
            if kind in classes and tag in ("a", "div"):
                self._open, self._text = f"{tag} {kind}", []
                if kind == "result__a":
                    self._url = _target(attributes.get("href", ""))

    def handle_data(self, data: str) -> None:
        if self._open:
            self._text.append(data)

    def handle_endtag(self, tag: str) -> None:
        kind = self._open.removeprefix(f"{tag} ")
        if not self._open or kind == self._open:
            return
        text = " ".join("".join(self._text).split())
        if kind == "result__a" and self._url:
            self.hits.append(WebHit(text, self._url, "", ""))
        elif kind == "result__snippet" and self._url and self.hits:
            self.hits[-1] = msgspec.structs.replace(self.hits[-1], text=text)
        self._open = ""


def _target(href: str) -> str:
    """Where a link leads; "" for an advertisement. Most go through a page that counts."""
    parts = urlsplit(f"https:{href}" if href.startswith("//") else href)
    own = (parts.hostname or "").endswith("duckduckgo.com")
    if own and parts.path.startswith("/l/"):
        return next(iter(parse_qs(parts.query).get("uddg", ())), "")
    return "" if own or parts.scheme not in ("http", "https") else href
