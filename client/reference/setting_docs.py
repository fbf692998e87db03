"""A text for each setting of a client, for docs/sdk-reference.md. A test compares the names with client/settings.py."""

CONNECTION = {
    "client_id": "A name for this client, shown in the broker's log and metrics.",
    "request_timeout_ms": "How long to wait for a response; then the connection is closed, and the request retried.",
    "connect_timeout_ms": "How long opening a connection may take, including TLS and SASL.",
    "start_timeout_ms": "How long `start()` tries to reach a broker that is down: by default 3 seconds at most.",
    "retry_backoff_ms": "The wait before a request is sent again; it doubles each time.",
    "retry_backoff_max_ms": "The longest such wait.",
    "metadata_max_age_ms": "After how long metadata of topics and leaders are refreshed.",
    "connections_max_idle_ms": "A connection is closed after so long without a request.",
    "default_api_timeout_ms": "How long a call of Admin, or of a consumer about offsets, retries.",
    "allow_auto_create_topics": "Whether the broker may create a missing topic on first use. Consumers, Admin: False.",
    "security_protocol": "`PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`.",
    "ssl_context": "An `ssl.SSLContext` of your own, instead of the settings below.",
    "ssl_cafile": "File with the certificate authorities (PEM) for the broker's certificate; by default the system's.",
    "ssl_ca_pem": "The same authorities as a text in PEM format.",
    "ssl_certfile": "File with the client's own certificate (PEM), for a broker that asks for one (mutual TLS).",
    "ssl_certificate_pem": "The same certificate as a text in PEM format.",
    "ssl_keyfile": "File with its key (PEM), if the key is not in the same file.",
    "ssl_key_pem": "The same key as a text in PEM format, if it is not in that of the certificate.",
    "ssl_password": "The key's password.",
    "ssl_check_hostname": "Whether the broker's certificate must contain the host name of the connection.",
    "sasl_mechanism": "`PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512` or `OAUTHBEARER`.",
    "sasl_plain_username": "The user name, for PLAIN and SCRAM.",
    "sasl_plain_password": "The password, for PLAIN and SCRAM.",
    "sasl_oauth_token_provider": "A function, `async` or not, that returns a token, or a token and for how many"
    " milliseconds it is good; it is called again before the token ends.",
    "sasl_oauthbearer_extensions": "What is sent with a token (KIP-342), by name.",
}

PRODUCER = {
    "transactional_id": "The id for transactions; the previous producer with it is fenced. Unique for each producer.",
    "name": "Of a named producer: the broker keeps the highest `sequence` of each name and partition, for good.",
    "enable_idempotence": "Whether a record that is sent again is stored only once, and in order.",
    "acks": '`"all"`, `1` or `0`: which replicas must have a record before it is acknowledged. By default all.',
    "retries": "How often a batch is sent again; by default until `delivery_timeout_ms`.",
    "max_in_flight": "Requests on one connection without a response; at most 5 with idempotence.",
    "linger_ms": "How long a batch that is not full waits for more records.",
    "max_batch_size": "Bytes of a batch, before compression.",
    "buffer_memory": "Bytes of all unacknowledged records; `send` waits while they are used up.",
    "max_request_size": "The largest request, and the largest record, in bytes.",
    "compression_type": "`gzip`, `snappy`, `lz4` or `zstd`.",
    "compression_level": "1 to 9 for gzip, 1 to 22 for zstd; by default the codec's own.",
    "delivery_timeout_ms": "How long a record may take from `send` to its acknowledgement.",
    "max_block_ms": "How long `send` waits for room in `buffer_memory`, or for a topic to appear.",
    "transaction_timeout_ms": "After how long the broker aborts an open transaction.",
    "partitioner": "A name or a function, see [sending](sdk.md#sending); by default `murmur2_random`, as in Java.",
    "key_serializer": "Converts a key to bytes, see [serializers](sdk.md#sending).",
    "value_serializer": "Converts a value to bytes.",
}

CONSUMER = {
    "group_id": "The consumer group. Without one, the consumer reads all partitions and cannot commit.",
    "group_instance_id": "Makes it a static member, which keeps its partitions if it restarts in `session_timeout_ms`.",
    "group_protocol": '`"classic"`, or `"consumer"`: the broker assigns partitions,'
    " see [groups](sdk.md#the-newer-group-protocol).",
    "group_remote_assignor": "With `consumer`: the broker's assignor, `uniform` or `range`; by default its first one.",
    "client_rack": "The rack of this client: it reads from the follower that the leader names for it (KIP-392).",
    "isolation_level": "`read_committed` returns no records of aborted or open transactions.",
    "auto_offset_reset": "Where to begin without a committed offset: `earliest`, `latest`; by default it is an error.",
    "enable_auto_commit": "Whether positions are committed periodically. `from_config` turns it on, as elsewhere.",
    "auto_commit_interval_ms": "How often, with `enable_auto_commit`.",
    "fetch_min_bytes": "A broker answers a fetch as soon as it has this number of bytes, or after `fetch_max_wait_ms`.",
    "fetch_max_wait_ms": "How long a broker waits for `fetch_min_bytes`.",
    "fetch_max_bytes": "The largest response to a fetch, and the most that is fetched ahead, in bytes.",
    "max_partition_fetch_bytes": "Bytes of one partition in a response; a larger first batch is returned anyway.",
    "max_decompressed_bytes": "Bytes of the records of a batch; by default twice `fetch_max_bytes`, at least 128 MiB.",
    "max_poll_records": "The most records in one batch or one `getmany`, unless the call has its own number.",
    "max_poll_interval_ms": "A member that does not read for so long leaves the group.",
    "session_timeout_ms": "The broker removes a member after so long without a heartbeat.",
    "heartbeat_interval_ms": "How often a member sends heartbeats; a third of `session_timeout_ms` or less.",
    "partition_assignment_strategy": "`range`, `roundrobin`, `sticky`, `cooperative-sticky`: by preference.",
    "check_crcs": "Whether the checksum of each batch is verified.",
    "key_deserializer": "Converts the bytes of a key, see [serializers](sdk.md#sending).",
    "value_deserializer": "Converts the bytes of a value.",
}

SHARE_CONSUMER = {
    "group_id": "The share group, whose consumers get its topics' records between them.",
    "auto_offset_reset": "Where the group begins with a topic: `earliest`, `latest` or `by_duration:PT1H`. It is set as"
    " the group's `share.auto.offset.reset`, unless it has one; another one is an error. By default the group's.",
    "acknowledgement": "`explicit`: only what is said counts. `implicit`: asking for more accepts what was returned"
    " before, unless something was said about it.",
    "max_poll_records": "How many records `getmany` and `batches` return at most, and about how many are fetched at"
    " once; few where the work on a record is long, so that other consumers get the rest.",
    "strict": "Whether no more than `max_poll_records` are fetched at once; else whole batches are.",
    "client_rack": "The rack of this client.",
    "fetch_min_bytes": "A broker answers as soon as it has so many bytes,",
    "fetch_max_wait_ms": "or after so long.",
    "fetch_max_bytes": "The largest response.",
    "max_decompressed_bytes": "The largest size of one batch's records, decompressed.",
    "max_poll_interval_ms": "After how long without a read the consumer gives back what it has not returned, and leaves"
    " until the next one; and for how long a returned record is renewed.",
    "check_crcs": "Whether the checksum of every batch is verified.",
    "key_deserializer": "Converts a key from bytes, see [reading](sdk.md#reading).",
    "value_deserializer": "Converts a value from bytes.",
}
