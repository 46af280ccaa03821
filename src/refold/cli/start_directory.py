"""`--worktree` and `--clone`: the session works in a directory that is made for it."""

import os
from argparse import Namespace
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from refold.client.resume import SessionDirectory
from refold.config.folder_settings import load_folder_settings
from refold.config.paths import current_directory, paths
from refold.config.settings import Permissions, RuleWithCases
from refold.errors import BadInput, RefoldError, ToolFailed
from refold.headless.streams import print_error

if TYPE_CHECKING:
    from refold.client.clones import Clone


def enter_new_directory(
    args: Namespace, find_session_directory: Callable[[Namespace], SessionDirectory]
) -> AbstractContextManager[object]:
    """Make the directory that the command line asks for, if any; at the end say what is in it.

    `find_session_directory` returns that of a resumed session. Raises `BadInput`. Not to be called in an event loop.
    """
    if (args.clone is not None or args.worktree is not None) and (
        args.container or args.devcontainer or args.keep
    ):
        raise BadInput(
            "--container and --devcontainer are for the directory itself: leave --clone and "
            "--worktree out, or start there with -C"
        )
    if args.setup and args.clone is None:
        raise BadInput("--setup is for a clone: add --clone URL")
    if args.worktree is not None:
        if args.clone is not None:
            raise BadInput("--clone makes a directory of its own: leave --worktree out")
        return _enter_worktree(args)
    resumes = args.resume is not None or args.continue_
    if args.clone is not None and resumes:
        raise BadInput(
            "--clone starts a new session, so it cannot be combined with -c or -r: a session "
            "in a clone is resumed like any other"
        )
    if args.clone is not None:
        return _enter_clone(args)
    return _return_to_clone(args, find_session_directory) if resumes else nullcontext()


@contextmanager
def _enter_clone(args: Namespace) -> Generator[None]:
    from refold.client.clones import make_clone
    from refold.place.git_source import parse_source

    source, place = parse_source(args.clone), ""
    if args.elsewhere:
        from refold.cli.start_elsewhere import address_given

        place = address_given("--workspace", args.elsewhere)
    try:
        clone = make_clone(source, place, args.setup or "", args.text, print_error)
    except ToolFailed as error:
        raise BadInput(f"--clone: {error}") from error
    args.workspace = Path(clone.directory)
    print_error(f"works in {clone.where}, on the branch {clone.branch}")
    try:
        yield
    finally:
        _finish(clone)


@contextmanager
def _return_to_clone(
    args: Namespace, find_session_directory: Callable[[Namespace], SessionDirectory]
) -> Generator[None]:
    """A session that is resumed may work in a clone: then report its result at the end."""
    from refold.cli.flags import PICK_SESSION

    try:
        yield
    finally:
        if args.resume not in (None, PICK_SESSION) and paths(os.environ).clones.is_dir():
            from refold.client.clones import clone_in

            if clone := clone_in(find_session_directory(args).directory):
                _finish(clone)


def _finish(clone: "Clone") -> None:
    from refold.client.clones import finish_clone

    try:
        for sentence in finish_clone(clone):
            print_error(sentence)
    except RefoldError as error:
        print_error(
            f"the clone is {clone.where}; its changes could not be compared: {error}"
        )


@contextmanager
def _enter_worktree(args: Namespace) -> Generator[None]:
    if args.resume is not None or args.continue_:
        raise BadInput(
            "--worktree starts a new session, so it cannot be combined with -c or -r"
        )
    from refold.client.worktree_flag import StartWorktrees

    trees = StartWorktrees()
    inside = trees.begin(args.worktree, str(current_directory()))
    left = _rules(args, current_directory())
    args.workspace = Path(inside.directory)
    if inside.trusted and not args.trust:
        args.trust, args.like = True, os.path.realpath(current_directory())
    rules = _rules(args, args.workspace)
    # The branch may have older settings, and no file that git ignores.
    args.ask = [*args.ask, *_rules_without(left.ask, rules.ask)]
    args.deny = [*args.deny, *_rules_without(left.deny, rules.deny)]
    print_error(f"works in {inside.directory}, on the branch {inside.branch}")
    try:
        yield
    finally:
        for sentence in trees.leave():
            print_error(sentence)


def _rules(args: Namespace, directory: Path) -> Permissions:
    trust = args.trust
    loaded = load_folder_settings(directory, paths(os.environ), os.environ, {}, trust=trust)
    return loaded.settings.permissions


def _rules_without(
    rules: Sequence[str | RuleWithCases], more_rules: Sequence[str | RuleWithCases]
) -> Sequence[str]:
    texts, known = (
        [rule if isinstance(rule, str) else rule.rule for rule in some]
        for some in (rules, more_rules)
    )
    return [text for text in texts if text not in known]
