"""Consumer groups: who is a member (machine, coordinator), and how far each group has read (offsets)."""
