-- How limits were defined over time (L16). A removed limit has a row with an empty definition.

CREATE TABLE IF NOT EXISTS limit_history (
    limit_name VARBINARY(512) NOT NULL,
    version BIGINT NOT NULL CHECK (version > 0),
    seen_at BIGINT NOT NULL,
    digest BINARY(32) NOT NULL,
    definition MEDIUMTEXT NOT NULL,
    PRIMARY KEY (limit_name, version)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
