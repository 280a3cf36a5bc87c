-- How limits were defined over time (L16). A removed limit has a row with an empty definition.

CREATE TABLE limit_history (
    limit_name TEXT NOT NULL,
    version INTEGER NOT NULL CHECK (version > 0),
    seen_at INTEGER NOT NULL,
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    definition TEXT NOT NULL,
    PRIMARY KEY (limit_name, version)
) STRICT, WITHOUT ROWID;
