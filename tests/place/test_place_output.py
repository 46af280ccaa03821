"""What a place sends of a command is kept within bounds until the event loop takes it."""

from refold.place.elsewhere.pipe import PlaceAnswer
from refold.place.elsewhere.place_commands import PlaceCommand
from refold.place.port import CommandExtras


def send_frame(
    running: PlaceCommand, kind: str, raw: bytes = b"", **fields: object
) -> None:
    running.receive(PlaceAnswer({"kind": kind, **fields}, raw))


def deliver_to_the_end(running: PlaceCommand) -> None:
    send_frame(running, "end")
    while not running.over:
        running.deliver()
    running.close()


def test_command_output_from_elsewhere_that_comes_too_fast_is_dropped_and_counted() -> None:
    texts = list[str]()
    running = PlaceCommand(texts.append, CommandExtras())
    for number in range(200):
        send_frame(running, "output", b"%07d\n" % number * 10_000)

    deliver_to_the_end(running)

    (text,) = texts
    assert text.startswith("\n[15,967,232 bytes were skipped: the output came too fast]\n")
    assert len(text) < 33_000
    assert text.endswith("0000199\n")


def test_command_output_from_elsewhere_within_the_limit_is_delivered_completely() -> None:
    texts = list[str]()
    running = PlaceCommand(texts.append, CommandExtras())

    send_frame(running, "output", b"one ")
    running.deliver()
    send_frame(running, "output", b"two ")
    send_frame(running, "output", b"three")
    deliver_to_the_end(running)

    assert "".join(texts) == "one two three"


def test_only_the_newest_used_time_of_a_command_elsewhere_is_delivered() -> None:
    used = list[float]()
    running = PlaceCommand(None, CommandExtras(used=used.append))

    for seconds in (0.5, 1.5, 2.5):
        send_frame(running, "used", seconds=seconds)
    running.deliver()
    deliver_to_the_end(running)

    assert used == [2.5]
