"""Images of the clipboard, which programs of the desktop read."""

from pathlib import Path

import anyio
import pytest

from refold.client.types import ImageData
from refold.console.clipboard import Clipboard
from refold.errors import BadInput

PNG = b"\x89PNG\r\n\x1a\n" + b"pixels"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where programs of the desktop are, which stand in for the real ones."""
    folder = tmp_path / "desktop"
    (tmp_path / "work").mkdir()
    folder.mkdir(mode=0o755)
    monkeypatch.chdir(tmp_path / "work")
    return folder


def install_program(folder: Path, name: str, prints: bytes, wanted: str) -> None:
    (folder / "image").write_bytes(prints)
    program = folder / name
    program.write_text(f"#!/bin/sh\n[ \"$*\" = '{wanted}' ] && cat {folder}/image\n")
    program.chmod(0o755)


def take_images(clipboard: Clipboard, times: int = 1) -> list[str]:
    async def take() -> list[str]:
        return [await clipboard.take_image() for _ in range(times)]

    return anyio.run(take)


@pytest.mark.parametrize(
    ("name", "wanted", "environ", "platform"),
    [
        ("wl-paste", "--no-newline --type image/png", {"WAYLAND_DISPLAY": "w"}, "linux"),
        (
            "xclip",
            "-selection clipboard -target image/png -out",
            {"DISPLAY": ":0"},
            "linux",
        ),
        ("pngpaste", "-", {}, "darwin"),
    ],
)
def test_a_pasted_image_is_sent_with_the_message_that_contains_its_label(
    programs: Path, name: str, wanted: str, environ: dict[str, str], platform: str
) -> None:
    install_program(programs, name, PNG, wanted)
    clipboard = Clipboard({"PATH": f"{programs}:/usr/bin:/bin", **environ}, platform)

    assert take_images(clipboard, 2) == ["[image 1]", "[image 2]"]
    assert clipboard.images_in("what is in [image 2]?") == (
        ImageData(PNG, "image/png", "clipboard-2.png"),
    )
    assert clipboard.images_in("and [image 3]") == ()


@pytest.mark.parametrize(
    ("prints", "environ", "message"),
    [
        (b"", {"DISPLAY": ":0"}, "there is no image on the clipboard"),
        (b"words", {"DISPLAY": ":0"}, "is not an image"),
        (
            PNG,
            {"WAYLAND_DISPLAY": "w"},
            "needs wl-paste: name a file instead, as @image.png",
        ),
        (PNG, {}, "no clipboard can be reached from here"),
    ],
)
def test_pasting_without_an_image_in_the_clipboard_explains_what_to_do(
    programs: Path, prints: bytes, environ: dict[str, str], message: str
) -> None:
    install_program(
        programs, "xclip", prints, "-selection clipboard -target image/png -out"
    )
    clipboard = Clipboard({"PATH": f"{programs}:/usr/bin:/bin", **environ}, "linux")

    with pytest.raises(BadInput, match=message):
        take_images(clipboard)


@pytest.mark.parametrize("takes", ["load-buffer -w -", "load-buffer -"])
def test_inside_tmux_a_text_is_copied_to_its_buffer(programs: Path, takes: str) -> None:
    program = programs / "tmux"
    program.write_text(f"#!/bin/sh\n[ \"$*\" = '{takes}' ] && cat >{programs}/buffer\n")
    program.chmod(0o755)
    clipboard = Clipboard({"PATH": f"{programs}:/usr/bin:/bin", "TMUX": "/tmp/t,1,0"})

    order, hint = anyio.run(clipboard.copy_text, "größer")

    assert (order, hint) == ("", "Copied: tmux pastes it with its prefix and ].")
    assert (programs / "buffer").read_text(encoding="utf-8") == "größer"


@pytest.mark.parametrize("environ", [{}, {"TMUX": "/tmp/t,1,0"}])
def test_without_tmux_a_text_is_copied_by_the_terminal(environ: dict[str, str]) -> None:
    clipboard = Clipboard({"PATH": "/nonexistent", **environ})

    order, hint = anyio.run(clipboard.copy_text, "hi")

    assert order == "\x1b]52;c;aGk=\x07"
    assert "OSC 52" in hint
