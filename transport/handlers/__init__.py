"""The requests that every node serves, one file each."""
