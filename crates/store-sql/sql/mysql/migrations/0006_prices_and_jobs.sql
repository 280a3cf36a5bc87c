-- What the versions of the price book said, and which gateway does a job that one does for all. Instants are milliseconds of
-- this database's clock.

CREATE TABLE IF NOT EXISTS price_book (
    version BIGINT NOT NULL PRIMARY KEY,
    first_at BIGINT NOT NULL,
    document MEDIUMTEXT NOT NULL,
    KEY price_book_by_time (first_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS job_lease (
    job VARBINARY(64) NOT NULL PRIMARY KEY,
    holder BIGINT NOT NULL,
    until BIGINT NOT NULL
) ENGINE = InnoDB;
