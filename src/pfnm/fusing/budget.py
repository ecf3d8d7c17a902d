"""How wide the global network may become."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, prod
from numbers import Integral, Real

from pfnm.errors import PFNMError
from pfnm.networks.network import Network

DEFAULT_BUDGET = 2.0
AUTO = "auto"  # a budget: the size by evidence and agreement (`sizes.fuse_auto`)
MOST_UNITS = 2**31  # of a layer: more than any limit needs to allow
FACTOR_STEPS = 60  # halvings in the search for the largest factor: far below one unit


def width_limits(networks: Sequence[Network], budget: float | int | None) -> dict[str, int] | None:
    """The most global units of each group; None for no limit.

    budget: a factor (float) of the widest site's layer, or a number of units (int) for every layer;
    never below the widest site. Rigid groups stay as wide as the widest site.
    """
    rigid = networks[0].graph.rigid
    if budget is None:
        widest = widest_sites(networks)
        return (
            {g: width if g in rigid else MOST_UNITS for g, width in widest.items()}
            if rigid
            else None
        )
    if isinstance(budget, bool) or not isinstance(budget, Real) or not 0 < budget < inf:
        raise PFNMError(f"budget is {budget}, expected a positive factor or number of units")
    limits = {}
    units = isinstance(budget, Integral)
    for group, widest in widest_sites(networks).items():
        limits[group] = min(int(budget), MOST_UNITS) if units else _scaled(widest, budget)
        if group in rigid:
            limits[group] = widest
        if limits[group] < widest:
            raise PFNMError(
                f"a budget of {budget}"
                + (f" units, a whole number ({budget}x would be a factor)," if units else "x")
                + f" is below the widest site's {widest} units in {group}; give a factor of at "
                "least 1 (2.0 or '2x') or at least that many units"
            )
    return limits


def limits_by_parameters(networks: Sequence[Network], most: int) -> dict[str, int]:
    """The widest layers, by one factor of the widest sites', with at most so many parameters."""
    widest, rigid = widest_sites(networks), networks[0].graph.rigid
    least = parameters(networks[0], widest)
    if least > most:
        raise PFNMError(
            f"{most} parameters are too few: the widest sites' layers alone make {least}; allow "
            "at least that"
        )
    low, high = 1.0, float(2 * min(most, MOST_UNITS))  # a layer has more parameters than units
    for _ in range(FACTOR_STEPS):
        middle = (low + high) / 2
        fits = parameters(networks[0], _all_scaled(widest, middle, rigid)) <= most
        low, high = (middle, high) if fits else (low, middle)
    return _all_scaled(widest, low, rigid)


def widest_sites(networks: Sequence[Network]) -> dict[str, int]:
    """The width of every group at the site where it is widest."""
    groups = networks[0].graph.outer_groups
    return {group: max(network.widths[group] for network in networks) for group in groups}


def parameters(network: Network, widths: dict[str, int]) -> int:
    """How many parameters the network would have with these widths."""
    sizes = {**network.sizes, **widths}
    return sum(prod(network.graph.shape(name, sizes)) for name in network.graph.axes)


def _scaled(width: int, factor: float) -> int:
    # 1.3 times 100 is 130, whatever floating point makes of it
    return int(min(width * factor + 1e-9, MOST_UNITS))


def _all_scaled(widths: dict[str, int], factor: float, rigid: Mapping[str, str]) -> dict[str, int]:
    return {
        group: width if group in rigid else _scaled(width, factor)
        for group, width in widths.items()
    }


def parsed_or_auto(text: str) -> float | int | str | None:
    """The same, or the word auto."""
    return AUTO if text.strip().lower() == AUTO else parsed_budget(text)


def parsed_budget(text: str) -> float | int | None:
    """A factor (1.5, 2x), a number of units (300), or none."""
    word = text.strip().lower()
    if word == "none":
        return None
    try:
        return int(word) if word.isdigit() else float(word.removesuffix("x"))
    except ValueError:
        raise PFNMError(
            f"budget {text!r} is no factor (1.5 or 2x), number of units (300), 'auto' or 'none'"
        ) from None
