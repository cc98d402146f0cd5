"""The requests every node answers, one file each."""
