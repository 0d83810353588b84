"""Bayesian layers, conversion of plain networks, and what a converted network says of itself."""

from pocketbayes.layers.auditing import Audit, audit
from pocketbayes.layers.bayesian import (
    BayesianModule,
    LinearLayer,
    bayesian_modules,
    drawing_by,
    estimator_of,
    set_estimator,
)
from pocketbayes.layers.checks import require_module
from pocketbayes.layers.conversion import (
    adopt_posteriors_,
    bayesianize_,
    named_posteriors,
    owners_of,
    replace_posterior,
    require_parameters,
)
from pocketbayes.layers.description import (
    NOISES,
    Description,
    add_noise_parameter,
    attach_description,
    describe,
    has_description,
    home,
    is_description,
    noise_parameters,
    set_description,
    unwrapped,
    update_description,
)
from pocketbayes.layers.ensembles import Ensemble, members_of
from pocketbayes.layers.estimators import ESTIMATORS
from pocketbayes.layers.inputs import (
    Inputs,
    called,
    explained_failure,
    mapped,
    moved,
    named_tensors,
    num_dims,
    num_examples,
    parts_of,
    run,
    tensors_of,
)
from pocketbayes.layers.modes import dropout_modules, restored_mode
from pocketbayes.layers.products import small_products
from pocketbayes.layers.selection import library_type

__all__ = [
    "ESTIMATORS",
    "NOISES",
    "Audit",
    "BayesianModule",
    "Description",
    "Ensemble",
    "Inputs",
    "LinearLayer",
    "add_noise_parameter",
    "adopt_posteriors_",
    "attach_description",
    "audit",
    "bayesian_modules",
    "bayesianize_",
    "called",
    "describe",
    "drawing_by",
    "dropout_modules",
    "estimator_of",
    "explained_failure",
    "has_description",
    "home",
    "is_description",
    "library_type",
    "mapped",
    "members_of",
    "moved",
    "named_posteriors",
    "named_tensors",
    "noise_parameters",
    "num_dims",
    "num_examples",
    "owners_of",
    "parts_of",
    "replace_posterior",
    "require_module",
    "require_parameters",
    "restored_mode",
    "run",
    "set_description",
    "set_estimator",
    "small_products",
    "tensors_of",
    "unwrapped",
    "update_description",
]
