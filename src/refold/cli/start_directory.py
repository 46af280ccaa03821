"""`--worktree` and `--clone`: creates a worktree or clone in which the session works."""

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
    """Create the worktree or clone that the flags ask for, and report its changes at the end.

    `find_session_directory` returns the directory of a resumed session. Raises `BadInput`. Must
    not be called in an event loop.
    """
    makes_directory = args.clone is not None or args.worktree is not None
    uses_container = args.container or args.devcontainer or args.keep
    if makes_directory and uses_container:
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
    if args.clone is not None:
        if resumes:
            raise BadInput(
                "--clone starts a new session, so it cannot be combined with -c or -r: a "
                "session in a clone is resumed like any other"
            )
        return _enter_clone(args)
    if resumes:
        return _return_to_clone(args, find_session_directory)
    return nullcontext()


@contextmanager
def _enter_clone(args: Namespace) -> Generator[None]:
    """Create a clone for the session of the block. At the end, report its changes."""
    from refold.client.clones import make_clone
    from refold.place.git_source import parse_source

    source = parse_source(args.clone)
    place = ""
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
    """At the end of the block, report the changes if the session worked in a clone."""
    from refold.cli.flags import PICK_SESSION

    try:
        yield
    finally:
        if args.resume not in (None, PICK_SESSION) and paths(os.environ).clones.is_dir():
            from refold.client.clones import clone_in

            if clone := clone_in(find_session_directory(args).directory):
                _finish(clone)


def _finish(clone: "Clone") -> None:
    """Print which files have the changes of the clone, or why they are unknown."""
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
    """Create a worktree, or use an existing one, for the session of the block."""
    if args.resume is not None or args.continue_:
        raise BadInput(
            "--worktree starts a new session, so it cannot be combined with -c or -r"
        )
    from refold.client.worktree_flag import StartWorktrees

    trees = StartWorktrees()
    worktree = trees.begin(args.worktree, str(current_directory()))
    rules_of_repository = _rules(args, current_directory())
    args.workspace = Path(worktree.directory)
    if worktree.trusted and not args.trust:
        # the new directory is trusted like the repository
        args.trust = True
        args.like = os.path.realpath(current_directory())
    rules_of_worktree = _rules(args, args.workspace)
    # The branch may have older settings, and lacks files that git ignores, so the rules of
    # this directory apply, too.
    args.ask = [*args.ask, *_rules_without(rules_of_repository.ask, rules_of_worktree.ask)]
    args.deny = [
        *args.deny,
        *_rules_without(rules_of_repository.deny, rules_of_worktree.deny),
    ]
    print_error(f"works in {worktree.directory}, on the branch {worktree.branch}")
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
    rules: Sequence[str | RuleWithCases], known_rules: Sequence[str | RuleWithCases]
) -> Sequence[str]:
    """Return the texts of those `rules` that are not in `known_rules`."""
    known = {_rule_text(rule) for rule in known_rules}
    return [text for rule in rules if (text := _rule_text(rule)) not in known]


def _rule_text(rule: str | RuleWithCases) -> str:
    return rule if isinstance(rule, str) else rule.rule
