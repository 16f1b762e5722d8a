"""The verbs of a segment, a module each: ``async def verb(at, path, …)``, imported at its first use."""
