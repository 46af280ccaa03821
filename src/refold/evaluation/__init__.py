"""Evaluation: tasks as data, run by any model, with figures that can be compared."""
