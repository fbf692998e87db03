"""A data directory in a store of objects: how it is shipped there, point by point, and how it is fetched again.

A *point* is a checkpoint of the directory with everything that it names: for each file the extents of which it consists
(objects, and the bytes in them), and the journal after the checkpoint up to a complete round. A point ships only what
earlier points and rounds have not shipped. The *rounds* after a point are what was written to the journal until the
next point.

    kinds               whether a store holds a backup or the journal of brokers
    names, point        how objects are named, and their bytes
    planning            what is to be shipped, and in which objects
    creating, claims    a create whose answer was lost; who follows, and how a predecessor is ended
    unchanged, shipper  which shipped bytes of an earlier point are still valid; taking a point
    shipped_journal     what the store has of the journal already, for the next point
    tail, following     reading on in a journal that is being written; points, rounds and garbage, step by step
    retention, collecting  which points are kept; removing what only the others need
    reading, fetching   points and rounds as they are found in a store; making a data directory of them
    verifying           `fencepost store status` and `verify`
"""
