"""The crash simulator: real code in a world that is made up, from one seed.

Every part is imported from its own module: `disk` (a disk that loses what was not fsynced, fails,
fills up and is slow).
"""
