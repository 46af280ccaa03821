"""Manages the folder with the reader's programs, and stores which lessons are done.

The folder is `refold-course` in the current directory, or the current directory itself if that
is a folder of the course. The course stores nothing elsewhere, so deleting the folder starts
over.
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
    """The numbers of the lessons that are done, and the last problem of a check.

    `times` says how many times in a row this problem was found.
    """

    done: tuple[int, ...] = ()
    problem: str = ""
    times: int = 0


class ReaderFolder:
    """The folder of a reader. If `path` does not exist, it is created at the first write."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def program(self, lesson: Lesson) -> Path:
        """Return the path of the reader's program for this lesson, which may not exist yet."""
        return self.path / lesson.program_name

    def progress(self) -> CourseProgress:
        """Return the progress of the reader. Raises `BadInput` if its file is invalid."""
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
        """Create the folder and the lesson's first program. Return False if the program exists.

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
        """Start the lesson over: rename the reader's program, and delete its journals.

        Return the new name of the program, or "" if there was none.
        """
        done = [number for number in self.progress().done if number != lesson.number]
        program = self.program(lesson)
        new_name = ""
        if program.exists():
            new_name = self._free_name(program)
            program.rename(self.path / new_name)
        for journal in self.path.glob("journal*.jsonl"):
            journal.unlink()
        self.create(lesson)
        self._save(CourseProgress(tuple(done)))
        return new_name

    def mark_done(self, lesson: Lesson) -> None:
        done = {*self.progress().done, lesson.number}
        self._save(CourseProgress(tuple(sorted(done))))

    def next_hint(self, failure: NotYet) -> tuple[int, str]:
        """Return the number and the text of the next hint for a problem that a check found.

        If the last hint was already given, return it again.
        """
        progress = self.progress()
        # The first hint identifies a problem, because its text also has values of this run.
        problem = failure.hints[0]
        times = progress.times + 1 if progress.problem == problem else 1
        number = min(times, len(failure.hints))
        self._save(CourseProgress(progress.done, problem, times=number))
        return number, failure.hints[number - 1]

    def _free_name(self, program: Path) -> str:
        """Return the first name like agent-1.py that no file in the folder has."""
        names = (f"{program.stem}-{number}.py" for number in range(1, 10_000))
        return next(name for name in names if not (self.path / name).exists())

    def _save(self, progress: CourseProgress) -> None:
        (self.path / _PROGRESS_NAME).write_bytes(msgspec.json.encode(progress) + b"\n")


def reader_folder(directory: Path) -> ReaderFolder:
    """Return the folder of the course that belongs to the directory `directory`."""
    is_course_folder = (directory / _PROGRESS_NAME).exists()
    return ReaderFolder(directory if is_course_folder else directory / _FOLDER_NAME)
