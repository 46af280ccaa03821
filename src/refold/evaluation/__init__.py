"""Evaluation: tasks as data, run by any model, with figures that can be compared.

It opens sessions through the library's `Agent` and not as processes: the live news of a
session say where the time went, and a scripted model can be used. Checks run commands on
files that a model wrote, so they are confined as its commands are. Tasks about refold
itself are in `bench/`.
"""
