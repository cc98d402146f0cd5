"""How much a run does: the usual form, the quick one (`script/test --quick`) or the long one (`script/test --long`).

tests/conftest.py chooses the form before a test module is imported, so constants of a module can depend on it.
"""

from __future__ import annotations

from enum import Enum


class Form(Enum):
    QUICK = "quick"
    USUAL = "usual"
    LONG = "long"


_chosen = Form.USUAL


def choose(form: Form) -> None:
    global _chosen
    _chosen = form


def by_form(usual: int, *, long: int, quick: int | None = None) -> int:
    """The number for the current form; `usual` is also used in the quick form if `quick` is not given."""
    match _chosen:
        case Form.LONG:
            return long
        case Form.QUICK if quick is not None:
            return quick
        case _:
            return usual
