"""Measures what recursion gives for its price.

Tasks with computed answers are answered in four ways by the same model. `needles`, `rows` and
`code_questions` make the tasks, `ways` asks the model, `stand_in` is a model that errs at a known
rate, `outcomes` counts. Nothing is downloaded. `python -m bench.long_context --help` has the options.
"""
