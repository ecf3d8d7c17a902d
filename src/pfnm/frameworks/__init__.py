"""Live objects of other libraries <-> `Network`."""
