"""What each operation does to axes: one small function a rule, in a table by name.

A rule takes a Call, joins, splits or pins dimensions, and gives the dimensions of the output (a
list of them where there are several). `aten.linear` is a rule for all overloads of an operation,
`aten.max.dim` for one; operations in place (`relu_`) have the rule of those that are not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pfnm.tracing.rules.call import Rule

RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Puts a function into the table of rules."""

    def put(function: Rule) -> Rule:
        for name in names:
            RULES[name] = function
        return function

    return put


def rule_for(operation: object, own: Mapping[str, Rule]) -> Rule | None:
    """The rule of an operation, a user's own first; None if there is none."""
    full = str(operation)  # aten.relu_.default
    packet = full.rsplit(".", 1)[0]
    for table in (own, RULES):
        for name in (full, packet, packet.removesuffix("_")):
            if name in table:
                return table[name]
    return elementwise.pointwise if elementwise.is_pointwise(operation) else None


from pfnm.tracing.rules import (  # noqa: E402  (each fills the table)
    attention,
    convolutions,
    creation,
    elementwise,
    indexing,
    linear,
    norms,
    recurrent,
    reductions,
    shapes,
    slices,
)

__all__ = [
    "RULES",
    "attention",
    "convolutions",
    "creation",
    "elementwise",
    "indexing",
    "linear",
    "norms",
    "recurrent",
    "reductions",
    "rule",
    "rule_for",
    "shapes",
    "slices",
]
