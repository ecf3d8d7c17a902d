"""`python -m pfnm` is the command `pfnm`.

Python imports the package itself before it comes here: an interrupt in that first moment is its.
"""

from pfnm_command import main

main()
