"""Who leads the metadata log, and how far it is committed: Raft as KIP-595 has it, told of events, touching nothing."""
