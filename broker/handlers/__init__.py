"""One file for each API: what it does, the versions it is served in, what changed in each."""
