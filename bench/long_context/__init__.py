"""What recursion gives for its price: tasks with computed answers, each answered in four ways by the same model.

`needles`, `rows` and `code_questions` make the tasks, `ways` has them answered, `stand_in` is a model that errs at
a known rate, `outcomes` counts. Nothing is downloaded. `python -m bench.long_context --help` has the options.
"""
