"""Whole networks: sites, inputs and probes, matching group by group, averaging and refitting."""
