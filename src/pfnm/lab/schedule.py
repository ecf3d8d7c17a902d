"""When rounds of ours change over from matching to averaging, and how sites train then.

Matching brings together networks that were trained apart: each round the global network answers
more like all sites together. Once that gains little, the sites are near each other, and training
the whole global network at every site and averaging takes it further (docs/lab.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pfnm.lab.server import Server

LEAST_GAIN = 0.03  # of agreement, by a round of matching: twice the error with which it is known


def matching_pays(before: Server, after: Server) -> bool:
    """Whether the next round is to match again; by what the last one gained, without data.

    Where a perceptron's part is the whole network nothing is trained apart, and any gain is enough.
    Modules are matched once: a second time gave less than averaging did (docs/lab.md).
    """
    if after.network is None:
        return True
    if after.network.program.examples is not None:
        return False
    if before.agreement is None or after.agreement is None:
        return True
    widths = after.network.widths
    whole = all(network.widths == widths for network in after.sent.values())
    return after.agreement - before.agreement >= (0.0 if whole else LEAST_GAIN)


def rate_share(server: Server, number: int) -> float:
    """The share of their rate at which sites train in a round (1, 2, ...): with averaging, less.

    Sites that train one network apart drift from each other, the further the larger their steps, so
    averages settle only if steps shrink: 2/3 in the second round, then 1/2, 2/5, 1/3 (one over the
    root was worse, docs/lab.md). Modules, whose rate is small as it is, train on with it.
    """
    if not server.averaging or server.network is None:
        return 1.0
    return 2 / (number + 1) if server.network.program.examples is None else 1.0
