"""Seeds that once failed, each with the mistake it found. They run for ever.

A seed means another run once the simulator itself has changed; what it found then is held by a unit test as well.
"""

REGRESSIONS: dict[int, str] = {}
