"""The memory: a sketch, its policies, what it knows of everything seen, and its file."""

from olss.memory.policies import POLICIES, Balanced, Weighted
from olss.memory.pool import Choice, Policy, Pool
from olss.memory.sketch import Sketch

__all__ = ["POLICIES", "Balanced", "Choice", "Policy", "Pool", "Sketch", "Weighted"]
