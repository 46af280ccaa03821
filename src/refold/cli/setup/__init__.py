"""Doors about this machine: settings, keys, models, shells, and whether all is well."""
