"""Schedules: when something will run, and the file of all schedules."""
