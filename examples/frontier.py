"""Size against accuracy: fusions at several budgets beside the best site and the ensemble."""

import json
from pathlib import Path

import numpy as np

import pfnm
from pfnm import demo
from pfnm.frontier import frontier

folder = Path("pfnm-demo")
demo.run(folder)  # ten sites' files, their class counts and test data
sites = pfnm.as_sites(
    sorted(folder.glob("site*.safetensors")),
    class_counts=json.loads((folder / "counts.json").read_text()),
)
data = np.load(folder / "test.npz")
for point in frontier(sites, budgets=(1.0, 2.0, None), examples=(data["x"], data["y"])):
    print(f"{point.name:20} {point.parameters:>8,} parameters {point.accuracy:.3f}")
