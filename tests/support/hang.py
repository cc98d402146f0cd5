"""How long the tests of whole processes wait for what must happen.

It ends a hang and says nothing about speed: on a busy machine the start of a Ray alone may take a minute.
"""

HANG_SECONDS = 300.0
