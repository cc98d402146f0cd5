"""Tests of the console with a real browser."""
