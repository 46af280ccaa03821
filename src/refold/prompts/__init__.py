"""Prompts: texts for the model, in files of their own."""
