"""The error for options that do not go together."""

from __future__ import annotations


class UsageError(Exception):
    """An option is missing, or contradicts another. It is reported like what argparse itself finds wrong."""
