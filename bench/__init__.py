"""Measures refold beside a bare loop, in one run.

No figure is asserted. `make bench` prints them; compare ratios, not seconds, between machines.
"""
