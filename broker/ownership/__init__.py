"""Who owns a journal in a store of objects: waiting for the owner to be silent, taking over, and staying the owner."""
