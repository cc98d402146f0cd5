"""Groups of the classic protocol, whose leader assigns partitions: JoinGroup, SyncGroup, Heartbeat, LeaveGroup."""
