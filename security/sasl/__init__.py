"""SASL mechanisms, sans-IO, both ends: what the peers of a connection say to prove who they are."""
