-- The tables of one generation of the index (SQLite). Run once, on a new and empty file, inside the
-- transaction that also stamps application_id and user_version; never on a file that exists, so
-- there is no IF NOT EXISTS here. The vectors' table, chunk_vector, needs the dimension and is
-- created by schema.py when the fingerprint is known.
--
-- Lists and mappings are JSON text. Times are ISO 8601, UTC, whole seconds. Checksums are the first
-- eight bytes of BLAKE2b as a signed integer.
--
-- Full text: chunk.terms is what the analyser made of a passage, each term with the language and the
-- ACL set of its document behind a tilde (sauvegard~fr3). chunk_text is the inverted index over it,
-- chunk_term reads its postings, chunk_term_count counts them. Because the ACL set is part of the
-- term, what a caller may not see is never looked up, let alone counted.

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
    language        TEXT NOT NULL,
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
    terms           TEXT NOT NULL,
    UNIQUE (document_id, position)
);

-- How many terms each passage has, in a table narrow enough to stay in memory.
CREATE TABLE text_length (
    chunk_id       INTEGER PRIMARY KEY,
    acl_set        INTEGER NOT NULL,
    language       TEXT NOT NULL,
    source_id      INTEGER NOT NULL,
    terms          INTEGER NOT NULL,
    terms_checksum INTEGER NOT NULL
);

-- The statistics that text scores rest on, for each set of documents that is seen as a whole.
CREATE TABLE text_statistics (
    acl_set  INTEGER NOT NULL,
    language TEXT NOT NULL,
    chunks   INTEGER NOT NULL,
    terms    INTEGER NOT NULL,
    PRIMARY KEY (acl_set, language)
) WITHOUT ROWID;

-- Grows with every change of the full-text index: what a process remembers of it holds until then.
CREATE TABLE text_version (
    id      INTEGER PRIMARY KEY CHECK (id = 1),
    version INTEGER NOT NULL
);

INSERT INTO text_version VALUES (1, 0);

CREATE TRIGGER text_length_inserted AFTER INSERT ON text_length BEGIN
    UPDATE text_version SET version = version + 1;
    INSERT INTO text_statistics VALUES (NEW.acl_set, NEW.language, 1, NEW.terms)
    ON CONFLICT DO UPDATE SET chunks = chunks + 1, terms = terms + excluded.terms;
END;

CREATE TRIGGER text_length_deleted AFTER DELETE ON text_length BEGIN
    UPDATE text_version SET version = version + 1;
    UPDATE text_statistics SET chunks = chunks - 1, terms = terms - OLD.terms
    WHERE acl_set = OLD.acl_set AND language = OLD.language;
    DELETE FROM text_statistics
    WHERE acl_set = OLD.acl_set AND language = OLD.language AND chunks = 0;
END;

CREATE VIRTUAL TABLE chunk_text USING fts5(
    terms, content = 'chunk', content_rowid = 'id', tokenize = "ascii tokenchars '~_-./@&+#%'"
);

-- Without it deleted terms stay in the file until their segment is merged.
INSERT INTO chunk_text (chunk_text, rank) VALUES ('secure-delete', 1);

CREATE VIRTUAL TABLE chunk_term USING fts5vocab(chunk_text, instance);

CREATE VIRTUAL TABLE chunk_term_count USING fts5vocab(chunk_text, row);

CREATE TRIGGER chunk_text_inserted AFTER INSERT ON chunk BEGIN
    INSERT INTO chunk_text (rowid, terms) VALUES (NEW.id, NEW.terms);
END;

CREATE TRIGGER chunk_text_deleted AFTER DELETE ON chunk BEGIN
    INSERT INTO chunk_text (chunk_text, rowid, terms) VALUES ('delete', OLD.id, OLD.terms);
    DELETE FROM text_length WHERE chunk_id = OLD.id;
END;

-- No trigger follows an update of chunk.terms: with secure-delete, FTS5 (SQLite 3.54) loses track of
-- postings that are deleted and inserted again under one rowid without a flush in between, and an old
-- one may come back. The writer takes all of them out, flushes, and puts the new ones in.

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
