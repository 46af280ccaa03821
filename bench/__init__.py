"""Figures, not verdicts: what refold costs, beside a bare loop, in one run.

Nothing here asserts. `make bench` prints; compare ratios, not seconds, between machines.
"""
