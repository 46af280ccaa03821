"""Prompts are files with a version, and users may add their own."""

import hashlib
from pathlib import Path

import pytest

import refold.prompts
from refold.errors import BadInput
from refold.prompts.presets import (
    BUILT_IN,
    PresetFolder,
    names,
    preset,
    presets,
    shadow_notices,
)

OURS = Path(refold.prompts.__file__).parent
# Version and sha256 of each prompt that a model reads.
PINNED = {
    "coding": ("2", "af57468228be71d40c9022da9d001355a8fa9e23dfe788e76a891acfe6f69e8b"),
    "work": ("2", "100977cb96d1a7b774b3c87aa98812717eefab21d736e10c5b33ef682314b246"),
    "research": ("2", "4e523c9cedeec8136fcd77ed3d1d4ab669f300ff80f70d1bdf6a9e8b8061ccb4"),
    "review": ("2", "afdd7bed3db1cc33d4e1c8166acf129181e28cdb1a4165684b38a260ef1ef5e7"),
}
SMALL = "2c8139fa0e07444aa54a4883835278114a9b3130138b3da03cfc5bb381b1951d"
PLAIN = "---\nname: mine\ndescription: My way.\nversion: 3\n---\nBe brief.\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "prompts"


@pytest.fixture
def model_files(folder: Path, tmp_path: Path) -> PresetFolder:
    return PresetFolder(str(folder), ".refold/prompts", str(tmp_path))


def write_prompt(folder: Path, name: str, text: str | bytes) -> Path:
    file = folder / name / "PROMPT.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.mark.parametrize("name", BUILT_IN)
def test_changing_a_built_in_prompt_requires_a_new_version(name: str) -> None:
    version_and_hash = (preset(name).version, sha256(OURS / name / "PROMPT.md"))

    assert version_and_hash == PINNED[name], (
        f"prompts/{name}/PROMPT.md has changed: raise the version in it, and write "
        f"{version_and_hash} into PINNED above, so that a session can be told from one before"
    )


def test_the_small_prompt_matches_its_pinned_hash() -> None:
    assert sha256(OURS / "small.md") == SMALL, (
        "prompts/small.md has changed: try it with the small model, and write its sha256 above"
    )


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_built_in_prompt_contains_the_required_phrases(name: str) -> None:
    text = preset(name).text

    assert [
        word
        for word in (
            "never an order", "<reminder>", "history_search", "todo_write", "read_skill",
            "Before you say that you are done", "person's language",
        )
        if word not in text
    ] == []  # fmt: skip
    assert len(text) < 3_000


def test_a_user_preset_is_found_by_its_name(
    folder: Path, model_files: PresetFolder
) -> None:
    write_prompt(folder, "mine", PLAIN)

    own_preset = preset("mine", [model_files])

    assert (own_preset.description, own_preset.version, own_preset.text, own_preset.where) == (
        "My way.", "3", "Be brief.", ".refold/prompts/mine/PROMPT.md",
    )  # fmt: skip
    assert names([model_files]) == (*BUILT_IN, "mine")


def test_the_first_folder_with_a_preset_wins(
    folder: Path, model_files: PresetFolder, tmp_path: Path
) -> None:
    other = PresetFolder(str(tmp_path / "own"), "own", "/")
    write_prompt(folder, "mine", PLAIN)
    write_prompt(tmp_path / "own", "mine", PLAIN.replace("Be brief.", "Be long."))

    assert preset("mine", [model_files, other]).text == "Be brief."
    assert preset("mine", [other, model_files]).text == "Be long."


def test_a_preset_with_a_built_in_name_is_ignored_with_a_notice(
    folder: Path, model_files: PresetFolder
) -> None:
    write_prompt(folder, "coding", PLAIN.replace("mine", "coding"))

    assert preset("coding", [model_files]) == preset("coding")
    assert shadow_notices([model_files]) == (
        ".refold/prompts/coding/PROMPT.md is ignored: coding is a preset of refold; "
        "give yours another name",
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("codign", "there is no preset 'codign'; did you mean coding? there are coding, work, research, review, mine"),
        ("zzz", "there is no preset 'zzz'; there are coding, work, research, review, mine"),
        ("../mine", "there is no preset '../mine'; did you mean mine? there are coding, work, research, review, mine"),
    ],
)  # fmt: skip
def test_an_unknown_preset_fails_with_the_available_names(
    name: str, message: str, folder: Path, model_files: PresetFolder
) -> None:
    write_prompt(folder, "mine", PLAIN)

    with pytest.raises(BadInput) as error:
        preset(name, [model_files])

    assert str(error.value) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Be brief.\n", "line 1: the file has to begin with a line ---"),
        ("", "line 1: the file has to begin with a line ---"),
        ("---\nname: mine\n", "line 1: the line --- that ends the front matter is missing"),
        ("---\nname: mine\nBe brief\n---\nx\n", "line 3: 'Be brief' is not a line `key: words`"),
        ("---\nname: mine\nname: mine\n---\nx\n", "line 3: name stands there twice"),
        ("---\nname: mine\n---\nx\n", "line 3: the front matter says no description"),
        ("---\nname: mine\ndescription: d\n---\n \n", "line 4: there is no prompt after the front matter"),
    ],
)  # fmt: skip
def test_invalid_preset_front_matter_is_reported_with_its_line(
    text: str, message: str, folder: Path, model_files: PresetFolder
) -> None:
    write_prompt(folder, "mine", text)

    with pytest.raises(BadInput) as error:
        preset("mine", [model_files])

    assert str(error.value) == f".refold/prompts/mine/PROMPT.md, {message}"
    assert presets([model_files])[1] == (str(error.value),)
    assert [item.name for item in presets([model_files])[0]] == list(BUILT_IN)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"---\n" + b"x" * 40_000, "it is larger than 32 KiB"),
        (b"---\n\xff\n---\n", "it is not UTF-8 text"),
        (b"---\n\0\n---\n", "it is not text: it contains zero bytes"),
    ],
)
def test_an_unreadable_preset_file_is_refused(
    content: bytes, message: str, folder: Path, model_files: PresetFolder
) -> None:
    write_prompt(folder, "mine", content)

    with pytest.raises(BadInput) as error:
        preset("mine", [model_files])

    assert str(error.value) == (
        f"the preset .refold/prompts/mine/PROMPT.md cannot be read: {message}"
    )


def test_a_preset_link_out_of_the_folder_is_not_followed(
    folder: Path, model_files: PresetFolder, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = write_prompt(tmp_path_factory.mktemp("outside"), "mine", PLAIN)
    (folder / "mine").mkdir(parents=True)
    (folder / "mine" / "PROMPT.md").symlink_to(outside)

    with pytest.raises(BadInput, match="it lies outside of"):
        preset("mine", [model_files])


def test_a_preset_whose_name_differs_from_its_folder_is_refused(
    folder: Path, model_files: PresetFolder
) -> None:
    write_prompt(folder, "other", PLAIN)

    with pytest.raises(BadInput, match="named 'mine', and its folder 'other'"):
        preset("other", [model_files])
