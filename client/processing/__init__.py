"""Consume, work, produce, commit: what a worker of `raylog.process` does, without Ray."""
