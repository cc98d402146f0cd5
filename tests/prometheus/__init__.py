"""Tests with a real Prometheus."""
