"""Repeat a request without the image that a provider has just refused.

Images are checked before they are sent (`tools.images`), but no check knows every provider's
rules. An image that a model has accepted once is never suspected. Of the others, each is left
out in turn, the newest first, until the request is accepted; so all others stay. An image that
is left out is described in words, as are the oldest if there are too many for a request. `capability_fallback` does the same for features.
"""

import re
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing

from refold.errors import Overloaded, Refused, TooLong, ToolRefused
from refold.provider.images import IMAGE_REFUSAL_PATTERN
from refold.provider.port import Delta, Request, Retrying, is_response_part
from refold.values.messages import Image, ToolResult

_MAX_SINGLE_TRIES = 4  # if more images are new, all of these are left out at once
_MAX_REQUEST_BYTES = 20_000_000  # of images; in base64 below what providers take
_MAX_REFUSED_IMAGES = 2  # images refused, and none accepted: the model takes none
Hidden = frozenset[str]
_NO_IMAGES: Hidden = frozenset()


class ImageFallback:
    """Which images each model has refused, by the names of their blobs."""

    def __init__(self) -> None:
        self._refused: dict[str, Hidden] = {}
        self._accepted: dict[str, Hidden] = {}

    async def stream(
        self, request: Request, ask: Callable[[Hidden], AsyncGenerator[Delta, None]]
    ) -> AsyncGenerator[Delta, None]:
        """Yield the response from `ask`, which gets the names of images to leave out."""
        tries, over_limit = self._tries(request), _images_over_limit(request)
        hidden = next(tries)
        refusal: Refused | Overloaded | None = None
        while True:
            has_begun = False
            try:
                async with aclosing(ask(hidden | over_limit)) as deltas:
                    async for delta in deltas:
                        if (
                            refusal is not None
                            and not has_begun
                            and is_response_part(delta)
                        ):
                            yield self._notice(request, hidden, refusal)
                        has_begun = has_begun or is_response_part(delta)
                        yield delta
            except (Refused, Overloaded) as error:
                if has_begun or not _is_about_an_image(error):
                    raise
                refusal = error
                next_names = next(tries, None)
                if next_names is None:
                    raise
                hidden = next_names
            else:
                self._learn(request, hidden, over_limit)
                return

    def _tries(self, request: Request) -> Iterator[Hidden]:
        """The images to leave out of the first request, and after each refusal."""
        model, images = request.model, frozenset(request.pictures)
        refused = self._refused.get(model, _NO_IMAGES) & images
        accepted = self._accepted.get(model, _NO_IMAGES)
        if (
            len(self._refused.get(model, _NO_IMAGES)) >= _MAX_REFUSED_IMAGES
            and not accepted
        ):
            refused = images
        yield refused
        new = [name for name in reversed(_order(request)) if name not in refused | accepted]
        if 1 < len(new) <= _MAX_SINGLE_TRIES:
            for name in new:
                yield refused | {name}
        if new:
            yield refused.union(new)
        if refused.union(new) != images:
            yield images

    def _learn(self, request: Request, hidden: Hidden, over_limit: Hidden) -> None:
        if not request.pictures:
            return
        model = request.model
        self._refused[model] = self._refused.get(model, _NO_IMAGES) | hidden
        accepted = (
            self._accepted.get(model, _NO_IMAGES) | request.pictures.keys() - over_limit
        )
        self._accepted[model] = accepted - self._refused[model]

    def _notice(
        self, request: Request, hidden: Hidden, refusal: Refused | Overloaded
    ) -> Retrying:
        new = hidden - self._refused.get(request.model, _NO_IMAGES)
        names = [name for blob, name in _images(request) if blob in new]
        names_text = ", ".join(dict.fromkeys(names))
        count_text = "image" if len(new) == 1 else "images"
        return Retrying(
            0.0,
            f"{request.model} refused the {count_text} {names_text}, described in words instead: {refusal}",
        )


def _is_about_an_image(refusal: Refused | Overloaded) -> bool:
    """Whether the refusal may be about one of the images, not about image support."""
    if isinstance(refusal, Overloaded) and "(500)" not in str(refusal):
        return False
    if isinstance(refusal, TooLong | ToolRefused):
        return False
    words = str(refusal)
    return bool(re.search(IMAGE_REFUSAL_PATTERN, words, re.IGNORECASE))


def _images_over_limit(request: Request) -> Hidden:
    """The oldest images, if all together are too large for one request."""
    if sum(map(len, request.pictures.values())) <= _MAX_REQUEST_BYTES:
        return _NO_IMAGES
    left, over_limit = _MAX_REQUEST_BYTES, set[str]()
    for name in dict.fromkeys(reversed(_order(request))):
        left -= len(request.pictures[name])
        if left < 0:
            over_limit.add(name)
    return frozenset(over_limit)


def _order(request: Request) -> Sequence[str]:
    """The images that are sent, as they come in the conversation."""
    return [name for name, _ in _images(request) if name in request.pictures]


def _images(request: Request) -> Iterator[tuple[str, str]]:
    """Blob and name of each image of the conversation."""
    for stored in request.messages:
        for part in stored.message.parts:
            images = part.images if isinstance(part, ToolResult) else (part,)
            for image in images:
                if isinstance(image, Image):
                    yield image.blob, image.name or image.media_type
