"""The administration of a cluster: a sans-IO core, operations on top of it, and a blocking and an asyncio face."""
