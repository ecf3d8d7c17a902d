"""The paper's experiments as data, their runner and their results."""
