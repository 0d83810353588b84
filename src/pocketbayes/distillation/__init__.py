"""What many draws say, taught to a head that needs one pass."""

from pocketbayes.distillation.teaching import distill_

__all__ = ["distill_"]
