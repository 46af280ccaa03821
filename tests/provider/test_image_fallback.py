"""An image that a model refuses is left out; the others stay, and later ones are sent."""

import anyio
import msgspec
import pytest

from refold.errors import Refused
from refold.provider.port import Request, Retrying
from refold.testing.providers import Reply
from refold.testing.wire_answers import WireName, answer
from refold.testing.wire_server import Answer
from refold.values.messages import Image
from tests.provider.wires import MODEL, message, open_wire, request, stream_deltas

WIRES: tuple[WireName, ...] = ("anthropic", "openai-responses", "openai-chat", "gemini", "ollama")  # fmt: skip
NAMES = ("one", "two", "three", "four", "five", "six")
# In base64 as long as they are: a name in it is found in the body of a request.
BYTES = {name: f"image-{name}-----"[:12].encode() for name in NAMES}
MARKS = {
    name: msgspec.json.encode(data).decode().strip('"') for name, data in BYTES.items()
}
SAYS = {**MODEL, "capabilities": ["vision", "completion", "tools"]}
# Each is the message of a real server, shortened.
WORDINGS = (
    "Could not process image",
    "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum",
    "At least one of the image dimensions exceed max allowed size: 8000 pixels",
    "Unable to process input image. Please retry or report in",
    "You uploaded an unsupported image. Please make sure your image is valid.",
    "The image data you provided does not represent a valid image.",
    "failed to decode image: unknown format",
)


def make_request(*names: str) -> Request:
    images = [Image(name, "image/png", f"{name}.png") for name in names]
    return request(
        message("user", "?", *images), pictures={name: BYTES[name] for name in names}
    )


def refusal(wording: str) -> Answer:
    error = {"error": {"message": wording, "type": "invalid_request_error"}}
    return Answer(msgspec.json.encode(error), 400)


def send_images(
    wire: WireName, answers: list[Answer], *requests: Request
) -> tuple[list[set[str]], list[str]]:
    """Return the images of each request that went out, and the notices."""

    async def main() -> tuple[list[set[str]], list[str]]:
        async with open_wire(wire, *answers, says=SAYS) as (provider, server):
            deltas = [
                delta for item in requests for delta in await stream_deltas(provider, item)
            ]
            bodies = [call.body.decode() for call in server.heard]
        matching_NAMESs = [
            {name for name in NAMES if MARKS[name] in body} for body in bodies
        ]
        return matching_NAMESs, [
            delta.reason for delta in deltas if isinstance(delta, Retrying)
        ]

    return anyio.run(main)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("wording", WORDINGS)
def test_refused_image_is_left_out_and_later_ones_are_sent(
    wire: WireName, wording: str
) -> None:
    good = answer(wire, Reply("Yes."))

    texts, notices = send_images(
        wire,
        [refusal(wording), good, good, good],
        make_request("one"),
        make_request("one", "two"),
    )

    assert texts == [{"one"}, set(), {"two"}]
    assert len(notices) == 1
    assert "refused the image one.png, described in words instead" in notices[0]


def test_each_new_image_is_tried_and_accepted_images_are_not_removed() -> None:
    no, good = refusal(WORDINGS[0]), answer("openai-chat", Reply("Yes."))

    texts, notices = send_images(
        "openai-chat",
        [good, no, no, good, good],
        make_request("one"),
        make_request("one", "two", "three"),
        make_request("one", "two", "three", "four"),
    )

    assert texts == [
        {"one"}, {"one", "two", "three"}, {"one", "two"}, {"one", "three"}, {"one", "three", "four"},
    ]  # fmt: skip
    assert [notice.partition(" refused ")[2][:17] for notice in notices] == [
        "the image two.png"
    ]


def test_many_new_images_are_left_out_together() -> None:
    no, good = refusal(WORDINGS[0]), answer("openai-chat", Reply("Yes."))

    texts, notices = send_images(
        "openai-chat", [good, no, good], make_request("one"), make_request(*NAMES)
    )

    assert texts == [{"one"}, set(NAMES), {"one"}]
    assert "refused the images two.png, three.png" in notices[0]


def test_model_that_refuses_two_images_and_accepted_none_gets_no_more_images() -> None:
    no, good = refusal(WORDINGS[0]), answer("openai-chat", Reply("Yes."))

    texts, _ = send_images(
        "openai-chat",
        [no, good, no, good, good],
        make_request("one"),
        make_request("one", "two"),
        make_request("one", "two", "three"),
    )

    assert texts == [{"one"}, set(), {"two"}, set(), set()]


def test_refusal_that_persists_without_images_is_raised() -> None:
    no = refusal(WORDINGS[0])

    with pytest.raises(Refused, match="Could not process image"):
        send_images("openai-chat", [no, no, no], make_request("one"))


def test_oldest_images_are_left_out_of_a_request_above_the_size_limit() -> None:
    good = answer("openai-chat", Reply("Yes."))
    large = make_request("one", "two", "three")
    pictures = {name: BYTES[name] + bytes(9_000_000) for name in NAMES[:3]}

    texts, _ = send_images(
        "openai-chat", [good, good], msgspec.structs.replace(large, pictures=pictures), make_request("one")
    )  # fmt: skip

    assert texts == [{"two", "three"}, {"one"}]
