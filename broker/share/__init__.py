"""Share groups: many members get records of one partition, each record by itself, and acknowledge them in any order."""
