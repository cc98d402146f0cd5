"""Groups whose members agree on an assignment by themselves: JoinGroup, SyncGroup, Heartbeat, LeaveGroup."""
