"""The built-in tools, in the order in which a model reads them.

The profile of an agent selects some of them; rules limit what they may access.
"""

from refold.tools.apply_patch import apply_patch
from refold.tools.claims import claim
from refold.tools.code import diagnostics, references, symbols
from refold.tools.contract import Tool
from refold.tools.data import calc, json_query
from refold.tools.edit import edit_file, multi_edit, write_file
from refold.tools.find import glob, list_files
from refold.tools.grep import grep
from refold.tools.memory import memory_write
from refold.tools.notebook_edit import notebook_edit
from refold.tools.plan import ask_user, enter_plan_mode, exit_plan_mode
from refold.tools.python_tool import python
from refold.tools.read import read_file
from refold.tools.session_history import history_search
from refold.tools.shell import (
    background_output,
    background_run,
    background_stop,
    bash,
    monitor,
)
from refold.tools.skills import list_skills, read_skill
from refold.tools.task import schedule, task
from refold.tools.todo import (
    task_claim,
    task_create,
    task_get,
    task_list,
    task_update,
    todo_write,
)
from refold.tools.turn_control import compact, notify, think
from refold.tools.web import docs_lookup, web_fetch, web_search
from refold.tools.worktree import enter_worktree, exit_worktree


def builtin() -> tuple[Tool, ...]:
    return (
        *(read_file, list_files, glob, grep),
        *(write_file, edit_file, multi_edit, apply_patch, notebook_edit),
        *(bash, background_run, background_output, background_stop, monitor),
        *(
            python,
            task,
            schedule,
            think,
            notify,
            todo_write,
            compact,
            history_search,
            claim,
        ),
        *(task_create, task_get, task_update, task_list, task_claim),
        *(web_fetch, web_search, docs_lookup, json_query, calc),
        *(symbols, references, diagnostics),
        *(enter_worktree, exit_worktree),
        *(memory_write, list_skills, read_skill),
        *(ask_user, enter_plan_mode, exit_plan_mode),
    )
