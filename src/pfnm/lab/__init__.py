"""A federation on one machine: how data is split over sites, and what fusing is compared with."""
