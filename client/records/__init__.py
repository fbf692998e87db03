"""From the bytes of a fetch response to records or columns: framing, checksums, isolation, decompression, decoding.

Input. For each partition the broker sends a part of its log as it is on disk: consecutive record batches (KIP-98).

    batch    61 bytes of header: base offset, length, leader epoch, CRC of all that follows it, attributes (codec,
             control, transactional, time of append or of creation), last offset delta, base and highest timestamp,
             producer id, epoch and base sequence, number of records; then the records, plain or compressed as one block
    record   length, attributes, timestamp delta, offset delta, key, value, headers. Lengths, deltas and counts are
             zigzag varints, so the position of a field is known only after the fields before it are read

Steps, each on fewer bytes than the one before:

    1. whole_batches   split the bytes into batches, by their lengths. The first batch may begin below the requested
                       offset, the last may be cut off; a damaged frame ends it. After this step the next fetch offset
                       is known: after the last whole batch
    2. checksum        of every batch, also of one that the reader will not see: a damaged abort marker could hide the
                       producer's next transaction
    3. isolation       by batch headers. Markers are left out, and all batches of the aborted transactions that the
                       response lists. The broker sends a read_committed reader nothing above the last stable offset,
                       so no batch waits for its outcome. Batches that are left out are not decompressed
    4. payload         decompress it, up to a limit (`protocol.records.payload_of`)
    5. records         decode the records of one batch, see below

Positions come from batches. Compaction, markers and aborted transactions leave gaps in the offsets; the position after
a batch is its last offset + 1, even if the last record was removed.

Lazy. A fetch returns up to a megabyte, and the reader may pause, seek or stop after ten records. So steps 2 to 5 run
when the reader reaches a batch. Only then is an error in it raised, after all records before it, and again each time it
is reached. `fetched` does this for the consumer, and decodes 64 records at a time, or as many as are requested: objects
that are freed before the next ones are created cost no garbage collection. Spark's source (`spark/source/reading.py`)
needs all records of a range but no objects; it reads the batches in one pass. A tool that shows the log as it is
(`client/admin/reading.py`) needs steps 1 and 2 only.

Two results, from the same decoders:

    decoding   Record tuples for the consumer: some now, the rest of the batch later
    columns    the requested ones of offsets, timestamps, keys, values, headers, each a list or an array, for Spark,
               which makes Arrow arrays of them. The others are skipped

Why several decoders. The plain one, `protocol.records.records`, reads field by field and finds every error. But the
cost in Python is the number of operations, hardly the number of bytes, so a fast decoder needs few operations for each
record; how few depends on its assumptions. From the most assumptions to the least:

    runs       records of one shape: equal length bytes, consecutive offsets, no headers. Every field is at a fixed
               distance from that of the previous record, so one slice or one Struct reads a whole column. Metrics,
               events. 4 times as fast as the plain one, 6 times as columns
    usual      records of any sizes with consecutive offsets, short deltas and short keys. One Struct reads all fields
               before the key; the offset is compared with the expected bytes. Texts; most topics. 2 to 4 times
    singly     the rest, for example after compaction: varint by varint, in place. About as fast as the plain one

Each decodes as many records as meet its assumptions and returns where it stopped; the next one continues there. While
there are no runs, they are tried more and more rarely. None of the three reports errors: where its assumptions fail it
stops, and `singly` calls `protocol.records.read_record`, which raises the error. A batch whose offsets or timestamps
might be out of range is left to the plain decoder as a whole. So for any bytes the result is that of the plain decoder:
the same records, or an error if it raises one. The tests of this package compare all decoders with it.

`singly` is apart from `read_record` because of the call for each record, and what that returns. Measured in turns, CPU
time, records of 10 to 350 bytes with gaps in their offsets: a loop over `read_record` with one-byte varints read in
place takes 1.3 to 1.6 times as long as `singly`; with all of `singly` moved into it, 1.05 to 1.15 times. Records with
long varints alone (20 KB values, timestamps far apart) are 20 to 30 % faster by `read_record`. Pure.
"""
