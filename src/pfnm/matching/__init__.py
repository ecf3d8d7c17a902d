"""One group of units: the prior, its scores, the assignment, the sweeps. numpy and scipy only."""
