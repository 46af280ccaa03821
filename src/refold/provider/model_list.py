"""Asks a provider which models it has.

The parsers are pure: they convert the bytes of a page to models and the address of the next
page. `model_figures` caches the result, `known_models` lists models that are known without
asking, and `prices` computes costs.
"""

import re
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, TypeAlias, cast
from urllib.parse import quote, urlsplit

import anyio
import msgspec
from msgspec import Struct

from refold.errors import ProviderError, Refused
from refold.provider.api_client import Http
from refold.provider.catalog import server
from refold.provider.known_models import PriceTier
from refold.provider.model_figures import ListedModel
from refold.provider.spec import ProviderSpec
from refold.provider.wire_stream import count

_MAX_PAGES = 50  # a server with more pages repeats itself
_MAX_CONCURRENT_REQUESTS = 4  # to one Ollama server
_MAX_NAME_CHARS = 200
# Names of models that do not write text, for lists that do not report it.
_NOT_TEXT_PATTERN = (
    r"embed|whisper|moderation|dall-e|transcri|rerank|(?:^|[-/])(?:tts|stt|sora|ocr|image"
    r"|audio|realtime|voice|live|veo|imagen|lyria)(?:[-.\d]|$)"
)


class Page(Struct, frozen=True):
    models: tuple[ListedModel, ...]
    next: str = ""  # the path of the next page


Parser: TypeAlias = Callable[[Any], Page]


def has_list(spec: ProviderSpec) -> bool:
    """Whether the provider can be asked for its models. A command line cannot."""
    return spec.wire in _FIRST_PAGES


async def list_models(
    spec: ProviderSpec,
    environ: Mapping[str, str],
    *,
    key: str = "",
    connecting: float = 5.0,
    idle: float = 20.0,
) -> tuple[ListedModel, ...]:
    """Ask a provider for its models. Return them sorted by name.

    Raises `ProviderError`; and `BadInput` without a key or an address.
    """
    http = server(spec, environ, key=key, connecting=connecting, idle=idle)
    try:
        path, parse = _FIRST_PAGES[spec.wire]
        models = {model.name: model async for model in _list_all(http, path, parse)}
        if spec.wire == "ollama":
            models = await _with_windows(http, tuple(models))
    finally:
        await http.aclose()
    return tuple(models[name] for name in sorted(models))


def from_anthropic(page: Any) -> Page:
    """Return the models of a page that are not retired, and the next page's path or ""."""
    models: list[ListedModel] = []
    for model in _entries(page, "data"):
        if model.get("lifecycle") != "retired":
            models.append(ListedModel(model["id"], count(model.get("max_input_tokens"))))
    match page:
        case {"has_more": True, "last_id": str(last)} if last:
            return Page(tuple(models), f"{_ANTHROPIC_PATH}&after_id={quote(last, safe='')}")
        case _:
            return Page(tuple(models))


def from_gemini(page: Any) -> Page:
    """Return the models of a page that write text, and the next page's path or ""."""
    models = tuple(
        ListedModel(
            model["name"].removeprefix("models/"), count(model.get("inputTokenLimit"))
        )
        for model in _entries(page, "models", "name")
        if "generateContent" in (model.get("supportedGenerationMethods") or ())
        and not re.search(_NOT_TEXT_PATTERN, model["name"])
    )
    match page:
        case {"nextPageToken": str(token)} if token:
            return Page(models, f"{_GEMINI_PATH}&pageToken={quote(token, safe='')}")
        case _:
            return Page(models)


def from_openai(page: Any) -> Page:
    """Parse a page of OpenAI's list, or of a compatible server's, which may report more."""
    models = tuple(
        ListedModel(model["id"], _window(model), _price_tiers(model.get("pricing")))
        for model in _entries(page, "data")
        if _writes_text(model)
    )
    match page:
        case {"links": {"next": str(next_link)}} if "?" in next_link:
            # Only the query is used: the address and the key are our own.
            return Page(models, f"/models?{urlsplit(next_link).query}")
        case _:
            return Page(models)


def from_ollama(page: Any) -> Page:
    """Return the models of Ollama's list, which has one page and no context windows."""
    return Page(
        tuple(ListedModel(model["name"]) for model in _entries(page, "models", "name"))
    )


_ANTHROPIC_PATH = "/v1/models?limit=1000"
_GEMINI_PATH = "/v1beta/models?pageSize=1000"
_FIRST_PAGES: dict[str, tuple[str, Parser]] = {
    "anthropic": (_ANTHROPIC_PATH, from_anthropic),
    "openai-responses": ("/models", from_openai),
    "openai-chat": ("/models", from_openai),
    "gemini": (_GEMINI_PATH, from_gemini),
    "ollama": ("/api/tags", from_ollama),
}


async def _list_all(
    http: Http, path: str, parse: Parser
) -> AsyncGenerator[ListedModel, None]:
    """Yield the models on all pages of a list that begins at `path`. Raises `Refused`."""
    visited_paths: set[str] = set()
    while path and path not in visited_paths and len(visited_paths) < _MAX_PAGES:
        visited_paths.add(path)
        body = await http.get(path)
        try:
            page = parse(msgspec.json.decode(body))
        except (ValueError, TypeError, RecursionError) as error:
            peer = http.peer
            raise Refused(
                f"{peer.label} at {peer.base_url} answers {path.partition('?')[0]} with "
                f"something other than a list of models; check {peer.url_env or 'its address'}"
            ) from error
        for model in page.models:
            yield model
        path = page.next


async def _with_windows(http: Http, names: tuple[str, ...]) -> dict[str, ListedModel]:
    """Ask Ollama for the context window of each model, which its list does not contain.

    Models that do not write text are left out.
    """
    models = {name: ListedModel(name) for name in names}
    limit = anyio.CapacityLimiter(_MAX_CONCURRENT_REQUESTS)

    async def ask(name: str) -> None:
        """Add the window to a model in `models`, or remove the model if it writes no text."""
        from refold.provider.ollama import model_of

        async with limit:
            with suppress(ProviderError):  # after an error the window stays unknown
                body = msgspec.json.encode({"model": name})
                async with http.post("/api/show", body, model=name) as answer:
                    shown = bytearray()
                    while chunk := await answer.read():
                        shown += chunk
                model = model_of(bytes(shown))
                if model.can("completion"):
                    models[name] = ListedModel(name, model.window)
                else:
                    del models[name]

    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(ask, name)
    return models


def _entries(page: Any, key: str, name: str = "id") -> Iterator[dict[str, Any]]:
    """Yield the models in the list `key` of a page. `name` is the field of their name.

    A model without a usable name is left out. Raises `ValueError` if there is no list.
    """
    entries: Any = None
    match page:
        case {**fields} if not fields:  # Gemini omits empty fields
            entries = []
        case {**fields} if key in fields:
            entries = fields[key] or []
        case _:
            pass
    if not isinstance(entries, list):
        raise ValueError("no list")
    for entry in cast("list[Any]", entries):
        if isinstance(entry, dict):
            model = cast("dict[str, Any]", entry)
            value = model.get(name)
            if isinstance(value, str) and 0 < len(value) <= _MAX_NAME_CHARS:
                yield model


def _window(model: dict[str, Any]) -> int:
    """Return the context window that a server reports, in tokens, or 0 if it reports none."""
    meta: dict[str, Any] = model["meta"] if isinstance(model.get("meta"), dict) else {}
    values: tuple[Any, ...] = (
        model.get("context_length"),  # OpenRouter
        model.get("context_window"),  # Groq
        model.get("max_context_length"),  # Mistral, LM Studio
        model.get("max_model_len"),  # vLLM
        meta.get("n_ctx"),  # llama.cpp
    )
    return next((number for value in values if (number := count(value))), 0)


def _writes_text(model: dict[str, Any]) -> bool:
    """Whether a model writes text, as its server reports or its name suggests."""
    match model:
        case {"active": False} | {"capabilities": {"completion_chat": False}}:
            return False
        case {"architecture": {"output_modalities": [*ways]}}:
            return "text" in ways
        case {"capabilities": {"completion_chat": True}}:
            return True
        case _:
            return not re.search(_NOT_TEXT_PATTERN, model["id"])


def _price_tiers(pricing: Any) -> tuple[PriceTier, ...]:
    """Return the prices that OpenRouter reports, or () if they are not known or not usable.

    A price is not usable if it varies (it is then negative), or if each request has a price,
    too. OpenRouter writes dollars per token, as strings.
    """
    match pricing:
        case {"prompt": str(_), "completion": str(_)}:
            names = ("prompt", "completion", "input_cache_read", "input_cache_write")
        case _:
            return ()
    try:
        price_per_call = float(pricing.get("request") or 0)
        token_prices = [float(pricing[n]) if pricing.get(n) else None for n in names]
    except (TypeError, ValueError):
        return ()
    input_price, output_price, *cache_prices = map(_price_per_million, token_prices)
    if input_price is None or output_price is None or price_per_call:
        return ()
    return (PriceTier(0, input_price, output_price, *cache_prices),)


def _price_per_million(token_price: float | None) -> float | None:
    """Return the price of a million tokens, or None if `token_price` is not usable."""
    if token_price is None or not 0 <= token_price < 1:
        return None
    return round(token_price * 1e6, 6)
