"""Copies topics between clusters, with the model and the configuration names of MirrorMaker 2."""
