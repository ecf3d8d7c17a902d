"""A federation on this machine: six sites, uneven data, several methods, two rounds."""

from pathlib import Path
from tempfile import TemporaryDirectory

from pfnm.lab.runs import simulate
from pfnm.lab.setting import Setting

setting = Setting(
    sites=6,
    hidden=(40,),
    rounds=2,
    epochs=5,
    later_epochs=3,
    methods=("local", "ensemble", "joint", "pfnm-joint", "fedavg"),
)
with TemporaryDirectory() as folder:  # a folder you keep can be resumed: pfnm simulate --resume
    for row in simulate(setting, Path(folder) / "run", threads=1):
        print(f"{row['method']:12} round {row['round']}: {row['accuracy']:.3f}")
