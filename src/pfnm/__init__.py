"""The method: numpy and scipy only, no files, no printing."""
