"""Provides the model for single questions of code (leaf calls), with the limits of the
settings.
"""

from refold.app.app import App, code_settings
from refold.app.models import provider_for_role
from refold.app.python_setup import memo_directory
from refold.engine.budget import why_unenforceable
from refold.engine.world import Model
from refold.errors import BadInput
from refold.rlm.rate_limit import RateLimit
from refold.understanding.leaf_session import LeafSetup
from refold.values.usage import Budget, Usage


def leaf_setup(app: App, budget: Budget) -> LeafSetup:
    """Return the model and limits for leaf calls: single questions that code asks a model.

    Raises `BadInput` if the model cannot be used, or if its budget cannot be enforced.
    """
    models, role = app.models, app.settings.roles.small
    name = models.check(models.default("small"))
    if reason := why_unenforceable(name, models.price(name, Usage()), budget):
        raise BadInput(reason)
    return LeafSetup(
        Model(
            provider_for_role(models, name, role), name, models.traits(name).window,
            models.price, temperature=role.temperature,
        ),
        budget,
        code_settings(app.settings).code_limits,
        RateLimit(app.settings.python.calls_per_minute),
        models.masks,
        memo_directory(app.paths.data, app.directory),
    )  # fmt: skip
