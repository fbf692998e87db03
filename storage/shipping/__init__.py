"""A data directory in a store of objects: what is shipped there, point by point, and how it is fetched again.

A *point* is a checkpoint of the directory with all that it names: for each file the objects, and the bytes in them,
that it consists of (its extents), and the journal behind the checkpoint up to a complete round. A point ships only
what earlier points and rounds have not. Behind a point come *rounds*: what the journal got since, until the next point.

    kinds               whether a store holds a backup or the journal of brokers
    names, point        how objects are named, and their bytes
    planning            what is to be shipped, and in which objects
    creating, claims    a create whose answer was lost; who follows, and how a predecessor is ended
    unchanged, shipper  what of an earlier point still holds; taking a point
    shipped_journal     what the store has of the journal already, for the next point
    tail, following     reading on in a journal that is written to; points, rounds and garbage, step by step
    retention, collecting  which points are kept; removing what only the others need
    reading, fetching   points and rounds as they are found in a store; making a data directory of them
    verifying           `fencepost store status` and `verify`
"""
