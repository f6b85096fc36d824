"""What a sketch is made of: rows, settings, policies, moments, the engine and its file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from olss.util import lazy_getattr

if TYPE_CHECKING:
    from olss.memory.policies import POLICIES, Balanced, Policy, Weighted
    from olss.memory.pool import Choice, Pool

__all__ = ["POLICIES", "Balanced", "Choice", "Policy", "Pool", "Weighted"]

__getattr__ = lazy_getattr(
    __name__,
    {name: "olss.memory.policies" for name in ("POLICIES", "Balanced", "Policy", "Weighted")}
    | {name: "olss.memory.pool" for name in ("Choice", "Pool")},
)
