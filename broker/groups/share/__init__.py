"""Share groups (KIP-932): several members read one partition, and each record is given to one of them at a time."""
