"""A member of a share group (KIP-932): raylog.ShareConsumer."""
