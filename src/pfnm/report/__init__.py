"""Results -> tables and pictures."""
