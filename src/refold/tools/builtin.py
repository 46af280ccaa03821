"""The tools every agent can be given, in the order a model reads of them.

Which of them one agent has, and what they may touch, is its profile's and the
rules' business.
"""

from refold.tools.contract import Tool
from refold.tools.find import glob, list_files
from refold.tools.read import read_file
from refold.tools.search import grep
from refold.tools.shell import bash
from refold.tools.think import think
from refold.tools.write import edit_file, write_file


def builtin() -> tuple[Tool, ...]:
    return (read_file, list_files, glob, grep, write_file, edit_file, bash, think)
