-- What the versions of the price book said, and which gateway does a job that one does for all. Instants are milliseconds of
-- this database's clock.

CREATE TABLE price_book (
    version INTEGER PRIMARY KEY,
    first_at INTEGER NOT NULL,
    document TEXT NOT NULL
) STRICT;
CREATE INDEX price_book_by_time ON price_book (first_at);

CREATE TABLE job_lease (
    job TEXT NOT NULL PRIMARY KEY,
    holder INTEGER NOT NULL,
    until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
