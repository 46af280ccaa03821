"""Runs commands and accesses files in a workspace, on this machine or on another one."""
