"""Gives tasks to any model, and computes figures that can be compared. Tasks are data.

Sessions are opened through the library's `Agent`, in this process: so a test can use a scripted
model, and live news shows how the time was spent. The checks of a task run commands on files
that a model wrote, so these commands are confined like those of a model. The tasks about refold
itself are in `bench/`.
"""
