"""The server: it sees weights and class counts, and no form."""

import sys
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, UserConfig
from flwr.serverapp import Grid, ServerApp

from hospital.data import CLASSES, INPUTS
from pfnm.errors import PFNMError
from pfnm.flower import PFNMStrategy
from pfnm.lab.training import Recipe, initial_network

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """All rounds; what is wrong is the last line of the log."""
    try:
        run(grid, context.run_config)
    except PFNMError:
        sys.tracebacklimit = 0  # Flower prints where it was raised, but its line says all
        raise


def run(grid: Grid, config: UserConfig) -> None:
    """All rounds; those that a checkpoint has behind it are not done again."""
    hidden = int(config["hidden"])
    folder = Path(str(config["folder"])) if config["folder"] else None
    strategy = PFNMStrategy(
        initial_network(INPUTS, CLASSES, Recipe(hidden=(hidden,)), np.random.default_rng(0)),
        polish=bool(config["polish"]),
        input_range=(0.0, 1.0),
        min_sites=int(config["min-sites"]),
        evaluate=bool(config["evaluate"]),
        patience=float(config["connect-seconds"]),
        seed=int(config["seed"]),
        checkpoints=folder,
    )
    training = ConfigRecord(
        {
            "hidden": [hidden],
            "epochs": int(config["epochs"]),
            "later_epochs": int(config["later-epochs"]),
            "seed": int(config["seed"]),
        }
    )
    strategy.start(
        grid,
        ArrayRecord(),
        num_rounds=int(config["rounds"]) - strategy.round,
        timeout=float(config["round-seconds"]),
        train_config=training,
    )
    if strategy.network is None:
        raise PFNMError("no round had enough sites; the log says why each was left out")
    if folder is not None:
        strategy.save(folder / "global.safetensors")
