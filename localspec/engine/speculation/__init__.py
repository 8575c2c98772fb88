"""A round of speculation: drafting, verification, and the target's own states."""
