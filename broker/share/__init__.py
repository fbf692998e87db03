"""Share groups: records of one partition given out one by one, to many members, and acknowledged in any order."""
