"""One file per API: what it does, the versions it serves, what changed in each."""
