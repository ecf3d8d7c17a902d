"""`python -m pfnm` is the command `pfnm`."""

from pfnm.cli import main

main()
