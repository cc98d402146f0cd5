"""The requests a controller answers, one file each."""
