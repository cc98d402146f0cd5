"""Cluster metadata as an event-sourced machine: commands give records, replay gives the image."""
