"""The folder in which a reader works: the programs, and what was done so far.

It is `refold-course` in the current directory, or the current directory if that is one. Nothing
of the course is kept elsewhere, so deleting the folder starts over.
"""

from pathlib import Path

import msgspec
from msgspec import Struct

from refold.errors import BadInput
from refold.learn.course import Lesson
from refold.learn.workshop import NotYet

_FOLDER_NAME = "refold-course"
_PROGRESS_NAME = ".progress.json"
MAX_HINTS = 3


class CourseProgress(Struct, frozen=True, omit_defaults=True):
    """The numbers of the lessons that are done; of the last problem, how often it was met."""

    done: tuple[int, ...] = ()
    problem: str = ""
    times: int = 0


class ReaderFolder:
    """`path` may not exist yet: reading needs no folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def program(self, lesson: Lesson) -> Path:
        """The reader's program for this lesson, which may not exist yet."""
        return self.path / lesson.program_name

    def progress(self) -> CourseProgress:
        """Raises `BadInput` if the file was changed to something else."""
        file = self.path / _PROGRESS_NAME
        try:
            return msgspec.json.decode(file.read_bytes(), type=CourseProgress)
        except FileNotFoundError:
            return CourseProgress()
        except (msgspec.MsgspecError, OSError) as error:
            raise BadInput(
                f"{str(file)!r} cannot be read as the progress of the course: {error}. "
                "Delete it to begin at lesson 1"
            ) from error

    def create(self, lesson: Lesson) -> bool:
        """Create the folder and a first program if they are missing; True if one was.

        Raises `BadInput` if they cannot be written.
        """
        program = self.program(lesson)
        if program.exists():
            return False
        try:
            self.path.mkdir(exist_ok=True)
            program.write_text(lesson.first_program(), encoding="utf-8")
        except OSError as error:
            raise BadInput(
                f"{str(program)!r} cannot be written: {error.strerror}. "
                "Change to a directory that is yours to write, and start again there"
            ) from error
        if not (self.path / _PROGRESS_NAME).exists():
            self._save(CourseProgress())
        return True

    def reset(self, lesson: Lesson) -> str:
        """Start the lesson over. Returns the name under which the reader's program is kept."""
        progress, kept = self.progress(), ""
        program = self.program(lesson)
        if program.exists():
            kept = self._free_name(program)
            program.rename(self.path / kept)
        for journal in self.path.glob("journal*.jsonl"):
            journal.unlink()
        self.create(lesson)
        self._save(CourseProgress(tuple(n for n in progress.done if n != lesson.number)))
        return kept

    def mark_done(self, lesson: Lesson) -> None:
        done = {*self.progress().done, lesson.number}
        self._save(CourseProgress(tuple(sorted(done))))

    def next_hint(self, failure: NotYet) -> tuple[int, str]:
        """The number and the text of the next hint on this problem; the last one repeats."""
        progress = self.progress()
        times = progress.times + 1 if progress.problem == failure.hints[0] else 1
        times = min(times, len(failure.hints))
        self._save(CourseProgress(progress.done, failure.hints[0], times))
        return times, failure.hints[times - 1]

    def _free_name(self, program: Path) -> str:
        names = (f"{program.stem}-{number}.py" for number in range(1, 10_000))
        return next(name for name in names if not (self.path / name).exists())

    def _save(self, progress: CourseProgress) -> None:
        (self.path / _PROGRESS_NAME).write_bytes(msgspec.json.encode(progress) + b"\n")


def reader_folder(directory: Path) -> ReaderFolder:
    """The folder of the course that belongs to the directory `directory`."""
    inside = (directory / _PROGRESS_NAME).exists()
    return ReaderFolder(directory if inside else directory / _FOLDER_NAME)
