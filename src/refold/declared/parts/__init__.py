"""The source of generated programs: ordinary modules that are type-checked and tested here.

refold itself never runs them. `declared.generate` takes the modules that an agent needs, drops
the functions that it never calls, sets the constants of `settings`, and joins the rest to
one file. Where there are several modules for one thing (`openai_chat`, `anthropic`, …), they
define the same names, and an import here names one of them.

The modules are small because each is one choice (a backend, a context mode, a format) or a piece
that only some choices need. A larger module would bring code into a program that it never runs.
"""
