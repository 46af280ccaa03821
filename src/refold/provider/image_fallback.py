"""Repeats a request without the images that a provider refuses.

Images are checked before they are sent (`tools.images`), but no check knows every provider's
rules. After a refusal, the images that the model has not accepted before are left out one at a
time, the newest first. If the request is still refused, they are left out together, and in the
end all images are. An image that is left out is described in words. If the images are too
large for one request, the oldest images are described, too. `capability_fallback` leaves out
features.
"""

import re
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing

from refold.errors import Overloaded, Refused, TooLong, ToolRefused
from refold.provider.images import IMAGE_REFUSAL_PATTERN
from refold.provider.port import Delta, Request, Retrying, is_response_part
from refold.values.messages import Image, ToolResult

_MAX_SINGLE_TRIES = 4  # if more images are new, all of them are left out at once
# of images; encoded as base64, this is below the limits of providers
_MAX_REQUEST_BYTES = 20_000_000
# after this many refusals without an accepted image, the model is assumed to take none
_MAX_REFUSED_IMAGES = 2
Hidden = frozenset[str]  # the blobs of images that are left out
_NO_IMAGES: Hidden = frozenset()


class ImageFallback:
    """Remembers the images that each model has refused and accepted, by names of blobs."""

    def __init__(self) -> None:
        self._refused: dict[str, Hidden] = {}
        self._accepted: dict[str, Hidden] = {}

    async def stream(
        self, request: Request, ask: Callable[[Hidden], AsyncGenerator[Delta, None]]
    ) -> AsyncGenerator[Delta, None]:
        """Yield the response of `ask`, which gets the names of the images to leave out.

        After a refusal of an image, `ask` is called again with other images to leave out.
        """
        over_limit = _images_over_limit(request)
        tries = self._tries(request)
        hidden = next(tries)
        refusal: Refused | Overloaded | None = None
        while True:
            has_begun = False
            try:
                async with aclosing(ask(hidden | over_limit)) as deltas:
                    async for delta in deltas:
                        begins = not has_begun and is_response_part(delta)
                        if begins and refusal is not None:
                            yield self._notice(request, hidden, refusal)
                        has_begun = has_begun or begins
                        yield delta
            except (Refused, Overloaded) as error:
                if has_begun or not _is_about_an_image(error):
                    raise
                refusal = error
                next_hidden = next(tries, None)
                if next_hidden is None:
                    raise
                hidden = next_hidden
            else:
                self._learn(request, hidden, over_limit)
                return

    def _tries(self, request: Request) -> Iterator[Hidden]:
        """Yield the sets of images to leave out: at first, and after each further refusal."""
        model, images = request.model, frozenset(request.pictures)
        refused_before = self._refused.get(model, _NO_IMAGES)
        accepted = self._accepted.get(model, _NO_IMAGES)
        refused = refused_before & images
        if len(refused_before) >= _MAX_REFUSED_IMAGES and not accepted:
            refused = images  # the model seems to take no images
        yield refused
        known = refused | accepted
        new_images = [name for name in reversed(_sent_images(request)) if name not in known]
        if 1 < len(new_images) <= _MAX_SINGLE_TRIES:
            for name in new_images:
                yield refused | {name}
        if new_images:
            yield refused.union(new_images)
        if refused.union(new_images) != images:
            yield images  # also those that the model has accepted before

    def _learn(self, request: Request, hidden: Hidden, over_limit: Hidden) -> None:
        """Record that the model has refused the images in `hidden` and accepted the others.

        Images in `over_limit` were not sent, so nothing is known about them.
        """
        if not request.pictures:
            return
        model = request.model
        refused = self._refused.get(model, _NO_IMAGES) | hidden
        accepted = self._accepted.get(model, _NO_IMAGES) | (
            request.pictures.keys() - over_limit
        )
        self._refused[model] = refused
        self._accepted[model] = accepted - refused

    def _notice(
        self, request: Request, hidden: Hidden, refusal: Refused | Overloaded
    ) -> Retrying:
        """Return a notice about images in `hidden` that the model had not refused before."""
        newly_refused = hidden - self._refused.get(request.model, _NO_IMAGES)
        names = [name for blob, name in _images(request) if blob in newly_refused]
        names_text = ", ".join(dict.fromkeys(names))
        noun = "image" if len(newly_refused) == 1 else "images"
        return Retrying(
            wait=0.0,
            reason=f"{request.model} refused the {noun} {names_text}, described in words instead: {refusal}",
        )


def _is_about_an_image(refusal: Refused | Overloaded) -> bool:
    """Whether a refusal may be about one image, and not about images in general."""
    # Some servers fail with status 500 for an image that they do not support.
    if isinstance(refusal, Overloaded) and "(500)" not in str(refusal):
        return False
    if isinstance(refusal, TooLong | ToolRefused):
        return False
    words = str(refusal)
    return bool(re.search(IMAGE_REFUSAL_PATTERN, words, re.IGNORECASE))


def _images_over_limit(request: Request) -> Hidden:
    """Return the oldest images, without which the others fit into one request.

    Return an empty set if all images fit.
    """
    if sum(map(len, request.pictures.values())) <= _MAX_REQUEST_BYTES:
        return _NO_IMAGES
    bytes_left = _MAX_REQUEST_BYTES
    over_limit = set[str]()
    for name in dict.fromkeys(reversed(_sent_images(request))):  # the newest first
        bytes_left -= len(request.pictures[name])
        if bytes_left < 0:
            over_limit.add(name)
    return frozenset(over_limit)


def _sent_images(request: Request) -> Sequence[str]:
    """Return the names of the blobs of the images to send, in the order of the conversation."""
    return [name for name, _ in _images(request) if name in request.pictures]


def _images(request: Request) -> Iterator[tuple[str, str]]:
    """Yield the name of the blob and the file name of each image in the conversation."""
    for stored in request.messages:
        for part in stored.message.parts:
            images = part.images if isinstance(part, ToolResult) else (part,)
            for image in images:
                if isinstance(image, Image):
                    yield image.blob, image.name or image.media_type
