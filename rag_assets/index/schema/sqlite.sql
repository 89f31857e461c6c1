-- The tables of one generation of the index (SQLite). Run once, on a new and empty file, inside the
-- transaction that also stamps application_id and user_version; never on a file that exists, so
-- there is no IF NOT EXISTS here. The vectors' table, chunk_vector, needs the dimension and is
-- created by schema.py when the fingerprint is known.
--
-- Lists and mappings are JSON text. Times are ISO 8601, UTC, whole seconds. Checksums are the first
-- eight bytes of BLAKE2b as a signed integer.

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

-- Names of sources as small integers, because vec0 filters integers before top-k.
CREATE TABLE source (
    id   INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
);

-- Every distinct set of ACL tags, once: one integer per passage, tested before top-k.
CREATE TABLE acl_set (
    id   INTEGER PRIMARY KEY,
    tags TEXT NOT NULL UNIQUE
);

CREATE TABLE acl_set_tag (
    tag     TEXT NOT NULL,
    acl_set INTEGER NOT NULL REFERENCES acl_set (id),
    PRIMARY KEY (tag, acl_set)
) WITHOUT ROWID;

CREATE TABLE document (
    id              INTEGER PRIMARY KEY,
    source          TEXT NOT NULL,
    path            TEXT NOT NULL,
    url             TEXT NOT NULL,
    title           TEXT NOT NULL,
    content_hash    TEXT NOT NULL,
    digest          TEXT NOT NULL,
    modified_at     TEXT,
    acl_set         INTEGER NOT NULL REFERENCES acl_set (id),
    metadata        TEXT NOT NULL,
    warnings        TEXT NOT NULL,
    body_start_line INTEGER NOT NULL,
    chunk_count     INTEGER NOT NULL,
    run_id          TEXT NOT NULL,
    indexed_at      TEXT NOT NULL,
    UNIQUE (source, path)
);

CREATE INDEX document_by_acl_set ON document (acl_set);

CREATE TABLE chunk (
    id              INTEGER PRIMARY KEY,
    document_id     INTEGER NOT NULL REFERENCES document (id),
    position        INTEGER NOT NULL,
    title           TEXT NOT NULL,
    heading_path    TEXT NOT NULL,
    anchor          TEXT NOT NULL,
    start_line      INTEGER NOT NULL,
    end_line        INTEGER NOT NULL,
    tokens          INTEGER NOT NULL,
    content_hash    TEXT NOT NULL,
    row_checksum    INTEGER NOT NULL,
    vector_checksum INTEGER NOT NULL,
    content         TEXT NOT NULL,
    UNIQUE (document_id, position)
);

CREATE TABLE left_out (
    source    TEXT NOT NULL,
    path      TEXT NOT NULL,
    status    TEXT NOT NULL,
    reason    TEXT NOT NULL,
    rule      TEXT NOT NULL,
    rule_file TEXT,
    rule_line INTEGER,
    PRIMARY KEY (source, path)
) WITHOUT ROWID;

CREATE TABLE ingest_run (
    run_id              TEXT NOT NULL,
    partition           TEXT NOT NULL,
    source              TEXT NOT NULL,
    started_at          TEXT NOT NULL,
    finished_at         TEXT,
    status              TEXT NOT NULL,
    error               TEXT,
    documents_seen      INTEGER NOT NULL,
    documents_indexed   INTEGER NOT NULL,
    documents_skipped   INTEGER NOT NULL,
    documents_removed   INTEGER NOT NULL,
    documents_excluded  INTEGER NOT NULL,
    chunks_upserted     INTEGER NOT NULL,
    chunks_unchanged    INTEGER NOT NULL,
    chunks_embedded     INTEGER NOT NULL,
    duration_seconds    REAL NOT NULL,
    PRIMARY KEY (run_id, partition)
);

CREATE TABLE partition_state (
    partition    TEXT PRIMARY KEY,
    data_version TEXT NOT NULL,
    recorded_at  TEXT NOT NULL
) WITHOUT ROWID;

-- The one writer lease. run_id is NULL when nobody writes; generation counts its holders.
CREATE TABLE lease (
    id            INTEGER PRIMARY KEY CHECK (id = 1),
    generation    INTEGER NOT NULL,
    run_id        TEXT,
    partition     TEXT,
    host          TEXT,
    pid           INTEGER,
    process_scope TEXT,
    process_start TEXT,
    acquired_at   TEXT,
    renewed_at    REAL,
    ttl_seconds   REAL
);

INSERT INTO lease (id, generation) VALUES (1, 0);
