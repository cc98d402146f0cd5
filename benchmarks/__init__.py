"""Measurements by path of the data, each with its stated budget."""
