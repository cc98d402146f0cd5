"""The words every other package uses: ids, errors, configuration keys, time, outcomes. Imports nothing of raylog."""
