"""The quorum of the metadata log: leader election and commitment, by Raft as in KIP-595. Pure state machine."""
