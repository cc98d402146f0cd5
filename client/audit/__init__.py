"""The audit of the flow of records: stamps, counts at each tier, and the check for lost and duplicated records."""
