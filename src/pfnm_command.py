"""The command `pfnm`: an interrupt is one line, even while the rest is still being imported."""

import sys

INTERRUPTED = 130


def main() -> None:
    """Run the command line."""
    try:
        from pfnm.cli import main as run

        run()
    except KeyboardInterrupt:
        print("pfnm: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
