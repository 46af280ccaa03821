"""No key, and nothing that looks like one, is ever written."""

import re
import stat
from pathlib import Path

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from refold.config.mask_key import read_mask_key
from refold.errors import JournalError
from refold.journal.events.child_events import WorktreeEntered
from refold.journal.events.kinds import (
    Checkpointed,
    Ended,
    Event,
    Frame,
    ModelAnswered,
    Noted,
    Said,
    SessionResumed,
    SessionStarted,
)
from refold.journal.store.port import MemoryStore
from refold.session.hub import Subscription
from refold.session.recorder import Recorder
from refold.session.redactor import Redactor
from refold.values.live import Progress, SubagentDelta, TextCame, ThinkingCame
from refold.values.messages import Message, ToolCall

KNOWN = "hunter2-hunter2"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nowIB\n-----END RSA PRIVATE KEY-----"
# Put together here, so that scanners do not take this file for a leak.
SHAPES = [
    "sk-" + "ant-api03-" + "x1" * 20, "sk-" + "proj-" + "Ab1" * 10, "ghp_" + "a1" * 18,
    "github_pat_" + "a1" * 30, "glpat-" + "a1" * 10, "xoxb-" + "12-ab" * 6,
    "AKIA" + "A1" * 8, "AIza" + "x" * 35, "hf_" + "a" * 34, "npm_" + "a1" * 18,
    "pypi-" + "AgEI" * 15, "eyJ" + "a" * 12 + ".eyJ" + "b" * 12 + "." + "c" * 12, PEM,
    "ASIA" + "A1" * 8, "xapp-" + "1-A1" * 10, "xai-" + "a1" * 40, "gsk_" + "a1" * 26,
    "pplx-" + "a1" * 24, "nvapi-" + "a1" * 32, "r8_" + "a" * 37, "glrt-" + "a1" * 10,
    "gldt-" + "a1" * 10, "sk_live_" + "a1" * 12, "rk_live_" + "a1" * 12, "whsec_" + "a1" * 16,
    "shpat_" + "a1" * 16, "dop_v1_" + "a1" * 32, "dckr_pat_" + "a1" * 13, "lin_api_" + "a1" * 20,
    "AGE-SECRET-KEY-1" + "Q1" * 29,
]  # fmt: skip


def journal_text(event: Event, *secrets: str) -> str:
    """Return the event as written in the journal."""

    async def main() -> bytes:
        store = MemoryStore()
        await Recorder(store, masks=Redactor(secrets))(event)
        return store.lines[0]

    return anyio.run(main).decode()


@pytest.mark.parametrize(
    "around", ["{}", "key={}", '"{}"', "a\n{}\nb", "a\t{}", "\x1b[1m{}\x1b[0m", "\x1b[01;31m\x1b[K{}\x1b[m", "({}),", "é{}é"]
)  # fmt: skip
@pytest.mark.parametrize("secret", SHAPES, ids=lambda s: s[:8])
def test_secrets_are_masked_anywhere_in_the_text(secret: str, around: str) -> None:
    text = around.format(secret)

    for event in (
        Said(text),
        Ended("call-0", "done", text),
        Ended("call-0", "failed", text),
    ):
        line = journal_text(event)
        assert "[secret]" in line
        assert secret[6:] not in line
        assert msgspec.json.encode(secret).decode()[7:-1] not in line


@given(
    st.sampled_from([KNOWN, *SHAPES]),
    st.lists(st.sampled_from("ab \n文\ud83d"), max_size=9),
)
def test_a_secret_in_a_live_delta_is_masked_for_watchers(
    secret: str, around: list[str]
) -> None:
    record, text = Recorder(MemoryStore(), masks=Redactor([KNOWN])), "".join(around)
    watch = record.hub.watch()
    piece = f"{text} {secret} {text}"
    news = (TextCame(piece), ThinkingCame(piece), Progress("call-0", piece))

    for live in (*news, *(SubagentDelta("child-1", item) for item in news)):
        record.publish(live)

    result = repr([frame.item for frame in read_waiting(watch)])
    assert result.count("[secret]") == 6
    assert repr(secret)[1:-1] not in result


def read_waiting(watch: Subscription) -> list[Frame]:
    async def main() -> list[Frame]:
        return [frame async for frame in watch.frames()]

    watch.close()
    return anyio.run(main)


@pytest.mark.parametrize(
    "text", ["task-force", "sk-", "risk-adjusted-and-more-than-twenty", "ghost", "AKIA", "eyJ.x.y"]
)  # fmt: skip
def test_text_that_only_starts_like_a_secret_is_unchanged(text: str) -> None:
    assert text in journal_text(Said(text))


@pytest.mark.parametrize(
    "secret", [KNOWN, 'with "quotes" in it', "back\\slash\\es", "line\nbreak-in-it", "schlüßel-é-😀"]
)  # fmt: skip
def test_a_known_secret_is_masked_in_events_and_blobs_alike(secret: str) -> None:
    async def main() -> tuple[bytes, bytes]:
        store = MemoryStore()
        record = Recorder(store, masks=Redactor([secret]))
        await record(
            Said(f"the key is {secret}!"), Noted("x", Raw(msgspec.json.encode(secret)))
        )
        name = await record.put(f"blob {secret}\n{PEM}\n{SHAPES[0]} end".encode())
        return b"\n".join(store.lines), store.blobs.contents[name]

    lines, blob = anyio.run(main)

    assert lines.count(b"[secret]") == 2
    assert msgspec.json.encode(secret)[1:-1] not in lines
    assert blob == b"blob [secret]\n[secret]\n[secret] end"


def test_overlapping_secrets_are_masked_completely() -> None:
    line = journal_text(
        Said("a=hunter2-hunter2-more b=hunter2-hunter2"), KNOWN, f"{KNOWN}-more"
    )

    assert '"a=[secret] b=[secret]"' in line


def test_short_placeholder_keys_are_not_masked() -> None:
    assert "ollama/llama" in journal_text(Said("ollama/llama EMPTY"), "ollama", "EMPTY", "")


def test_a_key_with_invalid_unicode_does_not_break_masking() -> None:
    assert "Hi" in journal_text(Said("Hi"), "\udcff\udcfe-not-utf-8")


def call(arguments: bytes) -> ModelAnswered:
    return ModelAnswered(
        Message("assistant", (ToolCall("call-0", "bash", Raw(arguments), "t"),))
    )


def test_a_call_runs_with_its_secret_and_is_stored_masked() -> None:
    async def main() -> tuple[bytes, bytes, ToolCall | None]:
        store = MemoryStore()
        record = Recorder(store, masks=Redactor([KNOWN]))
        view = await record(call(b'{"command":"login hunter2-hunter2"}'))
        stored_call = view.conversation.calls[0].call
        unmasked = record.unmask(stored_call)
        later = Recorder(store, masks=Redactor([KNOWN]))
        await later.open()
        assert unmasked
        return (
            bytes(unmasked.arguments),
            bytes(stored_call.arguments),
            later.unmask(stored_call),
        )

    run_arguments, stored_arguments, after_a_restart = anyio.run(main)

    assert run_arguments == b'{"command":"login hunter2-hunter2"}'
    assert stored_arguments == b'{"command":"login [secret]"}'
    assert after_a_restart is None


def test_masking_a_masked_text_changes_nothing() -> None:
    masks = Redactor([KNOWN])
    once = masks.mask(b"a hunter2-hunter2 b")

    assert masks.mask(once) == once == b"a [secret] b"


def test_a_blob_is_found_by_its_name_with_masked_content() -> None:
    async def main() -> bytes:
        store = MemoryStore()
        record = Recorder(store, masks=Redactor([KNOWN]))
        name = await record.put(KNOWN.encode())
        assert re.fullmatch("[0-9a-f]{64}", name)
        with pytest.raises(JournalError, match="there is no blob"):
            await record.get("0" * 64)
        return await record.get(name)

    assert anyio.run(main) == b"[secret]"


def test_the_tag_of_a_mask_identifies_one_value_in_every_encoding() -> None:
    masks = Redactor(['correct horse "é"'], lambda: b"k" * 32)
    other = Redactor(['correct horse "é"'], lambda: b"j" * 32)
    value = 'correct horse "é"'
    numbered = "1\t" + PEM.replace("\n", "\n2\t")

    mask = masks.mask_event(value)

    assert re.fullmatch(r"\[secret:[0-9a-f]{4}\]", mask)
    assert masks.mask_event({"a": (value,)}) == {"a": (mask,)}
    assert masks.mask(msgspec.json.encode(value)) == b'"' + mask.encode() + b'"'
    assert masks.mask_event(PEM) != mask != other.mask_event(value)
    assert masks.mask_event(numbered) == f"1\t{masks.mask_event(PEM)}"
    assert masks.mask(msgspec.json.encode(numbered)) == msgspec.json.encode(
        masks.mask_event(numbered)
    )
    assert masks.mask_event(mask) == mask


def test_the_mask_key_is_stored_with_private_permissions(tmp_path: Path) -> None:
    data = tmp_path / "data"

    keys = {read_mask_key(data), read_mask_key(data)}

    assert [len(key) for key in keys] == [32]
    assert stat.S_IMODE((data / "mask.key").stat().st_mode) == 0o600


@pytest.mark.parametrize("text", ["damaged", "a link", "no directory"])
def test_an_unreadable_mask_key_is_replaced_by_a_temporary_one(
    tmp_path: Path, text: str
) -> None:
    data = tmp_path / "data"
    if text == "no directory":
        data.write_text("")
    else:
        data.mkdir()
        (tmp_path / "far").write_bytes(b"x" * 32)
        if text == "damaged":
            (data / "mask.key").write_bytes(b"short")
        else:
            (data / "mask.key").symlink_to(tmp_path / "far")

    key = read_mask_key(data)

    assert (len(key), key == b"x" * 32) == (32, False)


def test_the_directory_of_a_session_is_never_masked() -> None:
    place = "/home/hunter2-hunter2/p2"
    masks = Redactor(["hunter2-hunter2"])

    for event in (
        SessionStarted(place, roots=(place,)),
        SessionResumed(directory=place, roots=(place,)),
        Checkpointed(((place, "0" * 40),)),
        WorktreeEntered(place, place),
    ):
        assert masks.mask_event(event) == event
