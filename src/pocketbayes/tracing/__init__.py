"""From a network to its program, by running its own code on tensors without numbers."""

from pocketbayes.tracing import (  # noqa: F401  they fill the table
    activations,
    arithmetic,
    linear,
    sequences,
    views,
)
from pocketbayes.tracing.tracer import inputs_of, program_of

__all__ = ["inputs_of", "program_of"]
