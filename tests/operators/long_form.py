"""What only the long form of the tests does. Not for conftest.py, which is imported before the form is chosen."""

from __future__ import annotations

import pytest

from tests.support.forms import by_form

IS_LONG = bool(by_form(0, long=1))
long_only = pytest.mark.skipif(not IS_LONG, reason="with --long only")
