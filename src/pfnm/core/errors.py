"""The one exception class of pfnm."""


class PFNMError(ValueError):
    """Something pfnm was given cannot be used.

    The message is one line: the object (file, site, tensor), what was found, what was expected,
    and what to do.
    """
