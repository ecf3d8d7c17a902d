"""How sure the matches of a fusion are, group by group (`matching.confidence`)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pfnm.fusing.activity import activities
from pfnm.fusing.atoms import Assignments
from pfnm.fusing.groups import atoms_of
from pfnm.fusing.joint import MATCH_PROBES, centred
from pfnm.fusing.probes import probes_for
from pfnm.fusing.sites import Sites
from pfnm.fusing.sizes import EMPHASIS
from pfnm.matching.confidence import confidence
from pfnm.matching.prior import Prior
from pfnm.networks.network import Array


def confidences(
    sites: Sites, assignments: Assignments, rng: np.random.Generator
) -> dict[str, tuple[Array, ...]]:
    """Of each group (those within others left out) and site: how sure each unit's match is.

    By the weights on all sides, the other groups as they are matched, and by what units do.
    """
    networks = [centred(*pair) for pair in zip(sites.networks, sites.known, strict=True)]
    sites = replace(sites, networks=networks)
    probe_rng, draw_rng = rng.spawn(2)
    active = activities(sites, probes_for(sites, MATCH_PROBES, probe_rng))
    found = {}
    for group in networks[0].graph.outer_groups:
        does = active[group].counting(EMPHASIS) if group in active else None
        atoms, weights, mean = atoms_of(sites, group, assignments, Prior(site_variance=1.0), does)
        found[group] = confidence(atoms, assignments[group], np.array(weights), mean, rng=draw_rng)
    return found
