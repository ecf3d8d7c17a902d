"""A claim about an experiment, whose it is, and whether the rows bear it out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pfnm.experiments.rows import Row, Spread
from pfnm.matching.prior import RULES

PAPER, OURS, ASKED = "paper", "ours", "asked"  # claimed there, by us, or by nobody: asked here
MARKS = {PAPER: "", OURS: " (ours)", ASKED: " (asked)"}
UNKNOWN = "not measured yet"
WIDTH_CAP = RULES["published"].width_cap or 0
CLEAR = 2  # standard errors: a mean so far from a bound is clearly beyond it
SPLITS = {"even": "even split", "authors": "Dirichlet(0.5), authors' split"}
DATA = {"mnist": "MNIST", "cifar10": "CIFAR-10", "digits": "digits"}


@dataclass(frozen=True)
class Claim:
    """What is said, and what was measured: lines of text.

    found: whether it holds in each setting that is measured; wanted: the settings it speaks of;
    clear, against: in how many of them it clearly does, and clearly does not, if that is known;
    data: the data set's name, which `claims` fills in.
    """

    said: str
    measured: str
    found: tuple[bool, ...]
    wanted: int
    whose: str = PAPER
    data: str = ""
    clear: int | None = None
    against: int | None = None

    @property
    def holds(self) -> bool | None:
        """One setting against it is enough; for a yes, all must be there. None: too few are."""
        if not all(self.found):
            return False
        return True if len(self.found) == self.wanted else None

    @property
    def verdict(self) -> str:
        """As tables have it."""
        return UNKNOWN if self.holds is None else "yes" if self.holds else "no"

    @property
    def marked(self) -> str:
        """The data set, and whose claim it is of that, if not the paper's."""
        return self.data + MARKS[self.whose]


def data_name(data: str) -> str:
    """As figures and tables call it."""
    return DATA.get(data, data)


def split_name(split: str) -> str:
    """As figures and tables call it."""
    return SPLITS.get(split, split)


def layers_name(depth: int) -> str:
    """As figures and tables call it."""
    return f"{depth} hidden layer{'s' if depth > 1 else ''}"


def clearly_above(difference: Spread, bound: float = 0.0) -> bool:
    """By more than twice the standard error of the mean; never, if there is but one trial."""
    mean, deviation, number = difference
    return number > 1 and mean - bound > CLEAR * deviation / math.sqrt(number)


def clearly_below(difference: Spread, bound: float = 0.0) -> bool:
    """The same on the other side."""
    mean, deviation, number = difference
    return clearly_above((-mean, deviation, number), -bound)


def points(difference: float) -> str:
    """A difference of accuracies in points."""
    return f"{100 * difference:+.2f}"


def points_shown(difference: Spread) -> str:
    """In points, with the deviation over trials."""
    mean, deviation, number = difference
    text = points(mean)
    if number > 1:
        text += f" ± {100 * deviation:.2f}"
    return f"{text} points, {number} trial{'s' if number > 1 else ''}"


def listed(*texts: str) -> str:
    """Those that say something, a line each."""
    return "\n".join(filter(None, texts))


def at_the_cap(rows: Sequence[Row]) -> str:
    """How many networks have as many units in a layer as the published rules allow."""
    at = sum(max(map(int, row["widths"].split())) >= WIDTH_CAP for row in rows if row["widths"])
    if not rows:
        return ""
    return f"{at} of {len(rows)} networks at the published rules' limit of {WIDTH_CAP} units"
