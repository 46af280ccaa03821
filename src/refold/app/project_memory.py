"""Makes and keeps the notes of a project, which remain across sessions.

It connects the notes (`memory`) with the journals. It reads the user's messages from a journal;
a small model proposes notes, and code checks them. An event records how far the journal was
read. The module also makes the part of the system prompt that shows the notes, and the tool
that writes a note. `app.memory_worker` decides when notes are made, and in which process.
"""

import os
import re
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from functools import partial
from pathlib import Path
from typing import TypeAlias

import anyio
from msgspec import Struct
from msgspec.structs import replace

from refold.config.project import read_small_files
from refold.engine.budget import ask_outside_conversation
from refold.engine.world import Model, Record
from refold.errors import BadInput, JournalError, ProviderError, ToolFailed
from refold.journal.events.kinds import (
    Answered,
    Entry,
    Forked,
    Imported,
    MemoryExtracted,
    ModelAnswered,
    Said,
    SessionResumed,
    SessionStarted,
)
from refold.journal.session_index import SessionIndex
from refold.journal.state.fold import View
from refold.memory import distil
from refold.memory.function_words import SELF_WORDS
from refold.memory.grounding import (
    is_grounded,
    is_stated_in_order,
    lifts_prohibition,
    may_replace,
    normalize,
    stems,
)
from refold.memory.note_origins import NoteChange, Origin
from refold.memory.notes import Memory, NewNote, NoteOwner, notes_text
from refold.memory.notes_file import MAX_LINE_CHARS, one_line
from refold.memory.own_words import PersonWords, own_words
from refold.memory.project import PendingSessions, project_of
from refold.provider.port import Delta, Provider, Request
from refold.session.inbox import PLAN_APPROVED, PLAN_EDITED, PLAN_REJECTED
from refold.session.recorder import Recorder
from refold.session.redactor import Redactor
from refold.values.growing import Log
from refold.values.messages import Message, StoredMessage, Text
from refold.values.secret_mask import has_mask
from refold.values.text import TrustedText, trust_unchanged
from refold.values.usage import NO_LIMIT

ChooseModel: TypeAlias = Callable[[View], Model | None]
NOT_SAID_TEXT = (
    "Not saved: the person has not said this. A note holds their own words, nothing of files, "
    "pages or tool output. If it matters, ask with ask_user, and give the exact sentence as "
    "one of the options."
)
FORBIDDEN_TEXT = (
    'Not replaced: "{text}" forbids something, and this is about something else. Only the '
    "person can take it away (refold memory forget)."
)
# Text that states a password. "passwords are hashed" does not.
_PASSWORD_PATTERN = re.compile(
    r"\b(?:pass(?:word|wort|phrase|code)|kennwort|mot de passe|contraseña|senha|wachtwoord"
    r"|пароль|pin|api[ _-]?key|api[ _-]?schlüssel|(?:access |auth |secret )?token|secret)\b"
    r"[^.,;\n]{0,40}?(?:\s(?:is|ist|lautet|est|es|são|é)\s|[=:])\s*\S",
    re.IGNORECASE,
)
SECRET_TEXT = "Not saved: it seems to contain a key or a password."


class LearnResult(Struct, frozen=True):
    """The notes that were made of a session. `why` says why no model was called, or is ""."""

    session: str
    changes: tuple[NoteChange, ...] = ()
    why: str = ""


class ProjectMemory:
    """The notes of the project in `directory`.

    `masks` has the secrets that no note may contain.
    """

    def __init__(
        self,
        data: Path,
        directory: str | Path,
        index: SessionIndex,
        masks: Redactor | None = None,
    ) -> None:
        self.directory = os.path.realpath(directory)
        self.memory = Memory(data, project_of(directory))
        self.home, self._masks = index, masks or Redactor()
        self.pending = PendingSessions(self.memory.folder)

    def prompt_text(self, trusted: TrustedText | None = None) -> str:
        """Return the part of the system prompt that shows the notes. Never raises.

        It includes `.agent/memory.md` of the folder only if the folder is trusted. Then
        `trusted` returns the version of that file to use.
        """
        folder_text = self._folder_text(trusted) if trusted else ""
        return notes_text(
            self._stored_text("project"), self._stored_text("person"), folder_text
        )

    def note(self, words: str) -> str:
        """Save a note that the user wrote. Return a confirmation. Raises `BadInput`."""
        text = one_line(words, MAX_LINE_CHARS)
        if not text:
            raise BadInput("the note is empty: write #, then what to remember")
        if self.holds_secret(text):
            raise BadInput(
                "the note seems to contain a key or a password, so it was not saved"
            )
        section = (
            "Preferences" if SELF_WORDS & set(text.lower().split()) else "Project facts"
        )
        note = NewNote(section, text, origin=Origin(at=time.time()))
        if not self.memory.keep([note]):
            return f"it is remembered already: {text}"
        return f"remembered under {section}: {text}"

    def notebook(self, session: str) -> "Notebook":
        """Return the object that writes notes for the tool `memory_write` of this session."""
        return Notebook(self, session)

    def notice(self) -> str:
        """Return one line about the notes that were added and removed since the last notice.

        Return "" without such notes. Afterwards, the notes count as shown.
        """
        with suppress(BadInput):  # unreadable notes are reported elsewhere
            if news := self.memory.news():
                self.memory.mark_seen()
                return _to_line(news)
        return ""

    async def learn(
        self, session: str, record: Record, model: Model, *, again: bool = False
    ) -> LearnResult:
        """Make notes of the user's messages after those that were read before.

        With `again`, all messages are read. Raises `ProviderError` or `BadInput`; then no notes
        are made, but the usage is recorded.
        """
        entries = await anyio.to_thread.run_sync(self.entries, session)
        since = 0 if again else record.view.session.memory_up_to
        messages = user_messages_in(entries, since, self._is_about_project)
        if not messages:
            return LearnResult(session, why="there is nothing new in it")
        if not _final_responses(entries, after=0):
            return LearnResult(session, why="nothing was answered yet")
        end_seq = messages[-1].seq
        if not distil.is_worth_asking(messages):
            await record(MemoryExtracted(end_seq), author="memory")
            return LearnResult(session, why="it is too short")
        known = await anyio.to_thread.run_sync(self.memory.all_notes)
        words = distil.request_text(messages, _final_responses(entries, after=since), known)
        request = _request(words, model)
        answer = await ask_outside_conversation(request, "memory", model, NO_LIMIT, record)
        drafts = distil.parse_drafts(answer)
        if drafts is None:
            raise ProviderError(f"{model.name} gave no JSON for the notes")
        notes = distil.check_drafts(drafts, messages, known, session)
        clean = [note for note in notes if not self.holds_secret(note.text)]
        changes = await anyio.to_thread.run_sync(self.memory.keep, clean)
        new_count = sum(change.sign == "+" for change in changes)
        extracted = MemoryExtracted(end_seq, new_count, model=model.name)
        await record(extracted, author="memory")
        return LearnResult(session, changes)

    async def learn_of(
        self, session: str, choose_model: ChooseModel, *, again: bool = False
    ) -> LearnResult:
        """Make notes of a session that is not open, as `learn` does. Also raises `Held`.

        The journal keeps its modification time, because `-c` resumes the session used last.
        """
        if not self.home.exists(session):
            return LearnResult(session, why="it is not there any more")
        record = Recorder(self.home.store(session), masks=self._masks)
        unlocked_model = UnlockedModel(self.home, session, record)
        view = await record.open()
        try:
            model = choose_model(view)
            if model is None:
                return LearnResult(session, why="its model is not asked for notes")
            unlocked_model.provider = model.provider
            asked = replace(model, provider=unlocked_model)
            return await self.learn(session, record, asked, again=again)
        finally:
            unlocked_model.restore_time()  # while this process still has the lock
            await record.close()

    def has_new_messages(self, session: str, view: View) -> bool:
        """Whether a closed session has an answer, and messages that were not read for notes.

        Otherwise remove the session from the queue.
        """
        messages = view.conversation.user_messages
        has_unread = bool(messages) and messages[-1].seq > view.session.memory_up_to
        if has_unread and view.account.spent.answers:
            return True
        self.pending.remove(session)
        return False

    def entries(self, session: str) -> tuple[Entry, ...]:
        """Return the entries of a session's journal.

        Raises `JournalError` if it is damaged.
        """
        entries, damage = self.home.entries(session)
        if damage:
            raise JournalError(damage)
        return tuple(entries)

    def is_in_folder_notes(self, text: str) -> bool:
        """Whether `.agent/memory.md` of the folder contains this text."""
        return normalize(text) in normalize(self._folder_text())

    def holds_secret(self, text: str) -> bool:
        return bool(_PASSWORD_PATTERN.search(text)) or has_mask(
            self._masks.mask(text.encode())
        )

    def _is_about_project(self, directory: str) -> bool:
        """Whether a session in `directory` was about this project.

        A directory that no longer exists counts, because it may have been a worktree of the
        project.
        """
        gone = not os.path.isdir(directory)
        return gone or project_of(directory) == self.memory.project

    def _stored_text(self, owner: NoteOwner) -> str:
        with suppress(BadInput):  # a session works without notes
            return self.memory.text(owner)
        return ""

    def _folder_text(self, trusted: TrustedText = trust_unchanged) -> str:
        """Return the file `.agent/memory.md` of the directory, or else of the project.

        Return "" if neither has the file, or if the file is not trusted.
        """
        for folder in dict.fromkeys((self.directory, str(self.memory.project))):
            with suppress(BadInput):
                files = read_small_files(
                    folder, ".agent", ("memory.md",), skip=lambda _: False
                )
                content = files.get(".agent/memory.md")
                if content is not None:
                    real = os.path.realpath(os.path.join(folder, ".agent/memory.md"))
                    return trusted(real, content.decode("utf-8", "replace")) or ""
        return ""


class UnlockedModel:
    """A model that is called while the session's journal is not locked.

    The call may take a minute, and a user who returns to the session must not wait for it. If
    another process has opened the session meanwhile, recording the next event raises `Held`,
    and nothing is changed.
    """

    provider: Provider

    def __init__(self, index: SessionIndex, session: str, record: Recorder) -> None:
        self._remember_time = partial(index.remember_time, session)
        self._record = record
        # Sets the modification time back to that before this process wrote to the journal.
        self._set_time_back = self._remember_time()

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Yield the deltas of the provider while the journal is closed."""
        self.restore_time()
        await self._record.close()
        try:
            async with aclosing(self.provider.stream(request)) as deltas:
                async for delta in deltas:
                    yield delta
        finally:
            # Another process may have written to the journal during the call.
            self._set_time_back = self._remember_time()

    def restore_time(self) -> None:
        """Give the journal the modification time from before this process wrote to it."""
        self._set_time_back()


class Notebook:
    """Writes the notes of the tool `memory_write`, which must be based on user messages."""

    def __init__(self, memory: ProjectMemory, session: str) -> None:
        self._project_memory, self._session = memory, session

    async def write(self, section: str, text: str, replaces: str) -> str:
        return await anyio.to_thread.run_sync(self._write, section, text, replaces)

    def _write(self, section: str, text: str, replaces: str) -> str:
        """Save a note, and return a sentence for the model. Raises `ToolFailed`."""
        line = one_line(text[: 4 * MAX_LINE_CHARS], MAX_LINE_CHARS)
        note = self._note(section, line, replaces)
        try:
            changes = self._project_memory.memory.keep([note])
        except BadInput as error:
            raise ToolFailed(f"Not saved: {error}") from error
        if not changes:
            return "This is remembered already, or the person had it forgotten."
        return f'Remembered under {note.section}: "{note.text}".'

    def _note(self, section: str, text: str, replaces: str) -> NewNote:
        """Return the note to save. Raises `ToolFailed` if it must not be saved."""
        memory = self._project_memory.memory
        target = distil.section_named(section)
        if target is None:
            raise ToolFailed(
                f"There is no section {section!r}: {', '.join(distil.PLACE_CHOICES)}."
            )
        if self._project_memory.holds_secret(text):
            raise ToolFailed(SECRET_TEXT)
        old = memory.find_note(replaces) if replaces.strip() else None
        if replaces.strip() and old is None:
            known = "; ".join(item.line.text for item in memory.all_notes()) or "none"
            raise ToolFailed(f"No note is {replaces!r}. The notes are: {known}.")
        old_text = old.line.text if old else ""
        if not may_replace(old_text, text):
            raise ToolFailed(FORBIDDEN_TEXT.format(text=old_text))
        messages = distil.newest_messages(
            user_messages_in(self._project_memory.entries(self._session), after=0)
        )
        texts = [item.text for item in messages]
        if not is_grounded(text, texts, old_text):
            raise ToolFailed(NOT_SAID_TEXT)
        lifts_any = any(lifts_prohibition(n.line.text, text) for n in memory.all_notes())
        if lifts_any and not is_stated_in_order(text, texts):
            raise ToolFailed(NOT_SAID_TEXT)
        owner, place = target
        origin = _origin(self._session, text, messages)
        return NewNote(place, text, old.owner if old else owner, old_text, origin)


def user_messages_in(
    entries: Iterable[Entry],
    after: int,
    counts_directory: Callable[[str], bool] = lambda _: True,
) -> tuple[PersonWords, ...]:
    """Return what the user wrote in the messages after the event `after`.

    Answers to questions count, but not the text of a template or an approved plan.
    `counts_directory` decides whether messages that were sent in a directory count. Messages
    before an import or a fork are left out: they are by another user, or belong to the original
    session.
    """
    result: list[PersonWords] = []
    private, elsewhere = False, False
    for entry in entries:
        if isinstance(entry.event, Imported | Forked):
            result.clear()
        elif isinstance(entry.event, SessionStarted | SessionResumed):
            private = entry.event.no_memory or _is_scheduled(entry.event)
            if entry.event.directory:
                elsewhere = not counts_directory(entry.event.directory)
        elif entry.seq > after and not (private or elsewhere):
            match entry.event:
                case Said(words, "person", typed=typed):
                    wrote = words if typed is None else typed
                    own = own_words(_strip_plan(wrote))
                case Answered(answers=answers) if answers:
                    own = own_words("\n\n".join(answers))
                case _:
                    continue
            if own:
                result.append(PersonWords(entry.seq, entry.at, own))
    return tuple(result)


def _is_scheduled(event: SessionStarted | SessionResumed) -> bool:
    """Whether a schedule started the session.

    Then an agent or a request may have written its prompt.
    """
    return isinstance(event, SessionStarted) and event.schedule > 0


def _strip_plan(text: str) -> str:
    """Return what the user wrote in the answer to a plan, without the text of refold.

    An approval has no words of the user.
    """
    # The texts before the first `{`, where the words of the user are inserted.
    edited_prefix = PLAN_EDITED.partition("{")[0]
    rejected_prefix = PLAN_REJECTED.partition("{")[0]
    if text == PLAN_APPROVED or text.startswith(edited_prefix):
        return ""
    return text.removeprefix(rejected_prefix)


def _final_responses(
    entries: Iterable[Entry], after: int
) -> tuple[distil.DistilledAnswer, ...]:
    """Return the last response without calls of each turn after the event `after`."""
    responses: list[distil.DistilledAnswer] = []
    for entry in entries:
        match entry.event:
            case ModelAnswered(message) if entry.seq > after and not message.calls:
                if message.text.strip():
                    responses.append(distil.DistilledAnswer(entry.seq, message.text))
            case _:
                pass
    return tuple(responses)


def _request(text: str, model: Model) -> Request:
    """Return the request that distils notes from a text of messages."""
    message = Message("user", (Text(text),))
    return Request(
        Log([StoredMessage(0, message)]),
        distil.prompt(),
        model=model.name.partition("/")[2],
        max_output=distil.MAX_OUTPUT_TOKENS,
        schema=distil.ANSWER_SCHEMA,
    )


def _origin(session: str, text: str, messages: Sequence[PersonWords]) -> Origin:
    """Return the messages on which a note is based.

    These are the messages that share a word with the note. If no message does, return all
    messages.
    """
    text_stems = stems(text)
    sources = [words for words in messages if text_stems & stems(words.text)]
    if not sources:
        sources = list(messages)
    seqs = tuple(words.seq for words in sources)
    return Origin(session, seqs, max((words.at for words in sources), default=0.0))


def _to_line(news: Sequence[NoteChange]) -> str:
    """Return a line about the changes of the notes, such as "remembered: 2 new notes"."""
    new = sum(change.sign == "+" for change in news)
    removed = len(news) - new
    parts = [f"{new} new note{'s' * (new != 1)}"] if new else []
    parts += [f"{removed} went"] if removed else []
    return f"remembered: {', '.join(parts)} (refold memory diff)"
