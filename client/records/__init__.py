"""From the bytes that a fetch brought to records or columns: everything that a reader does with them, and nothing else.

What comes. The broker sends the log as it lies on its disk: of each partition a row of record batches (KIP-98).

    batch    61 bytes of header: base offset, length, leader epoch, CRC of all that follows it, attributes (codec,
             control, transactional, time of append or of creation), last offset delta, base and highest timestamp,
             producer id, epoch and base sequence, number of records; then the records, plain or compressed as one block
    record   length, attributes, timestamp delta, offset delta, key, value, headers. Lengths, deltas and counts are
             zigzag varints, so no field stands at a place that is known before those in front of it are read

Steps, each for fewer bytes than the one before:

    1. whole_batches   frames, by their lengths. The first batch may begin below what was asked for, the last be cut
                       off; damage to a frame ends it. Now it is known where to go on: behind the last batch
    2. the checksum    of every batch that is reached, also of one that nobody is going to see: a marker that damage has
                       turned into another would hide the producer's next transaction
    3. isolation       by headers. Markers are never seen, and of the aborted transactions, which the answer lists, no
                       batch is. Above the last stable offset the broker gives a read_committed reader nothing; so
                       nothing is held back until its outcome is known, and what is not seen is not decompressed
    4. the payload     decompressed, up to a limit (`protocol.records.payload_of`)
    5. the records     of one batch, below

Positions are those of batches. What cleaning, markers and aborted transactions left out is a gap, and nobody waits for
it: behind a batch comes its last offset and one, also where its last record is gone.

Late. A fetch brings a megabyte, and its reader may pause, seek or stop after ten records. So steps 2 to 5 are taken
when a batch is reached. What is wrong with it is told then, behind all that is sound before it, and again each time it
is reached. `fetched` does this for the consumer, and makes its records 64 at a time, or as many as are asked for:
objects that the reader has let go before the next are made cost the collector of garbage nothing. Spark's source
(`spark/reading.py`) wants all of a range and no objects; it goes over the batches once. Who shows a log as it is
(`client/admin/reading.py`) takes steps 1 and 2 alone.

Two results, made of the same parts:

    decoding   Record tuples, for the consumer: some now, the rest of the batch later
    columns    offsets, timestamps, keys, values, headers, each a list or an array, for Spark, which makes Arrow of
               them: those that are asked for. The others are stepped over

Why several decoders. The plain one, `protocol.records.records`, reads field by field, and says of any bytes what is
wrong with them. But Python's time goes by steps and hardly by bytes, so the way to be fast is to take few steps a
record; and how few will do depends on what may be taken for granted. From the most to the least:

    runs       records alike: the bytes of their lengths are the same, offsets consecutive, no headers. Every field is
               at a fixed distance from the last one, so a slice or one Struct takes a whole column. Metrics, events.
               4 times as fast as the plain one, 6 times as columns
    usual      any sizes, with consecutive offsets, short deltas and short keys. One Struct reads all that stands before
               the key, compared with the bytes that the next offset must have. Texts; most topics. 2 to 4 times
    singly     the rest, as cleaning leaves it: varint by varint, in place. About as fast as the plain one

Each takes as many records as suit it and says where it stopped; what is left goes to the next, and runs are looked for
ever more seldom where there are none. None of the three judges. Where bytes are not as it takes them to be, it stops,
and `singly` asks `protocol.records.read_record`, which has the words for what is wrong; a batch whose offsets or times
might leave their range is the plain decoder's as a whole. So for any bytes there is one outcome, the plain decoder's:
the same records, or an error where it has one. The tests of this package hold all others to that.
"""
