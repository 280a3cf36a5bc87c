-- What the gateways of one shared book tell each other: who lives, which epoch a shard has, who makes one whole again.
-- Instants are milliseconds of this database's clock.

-- Names the gateways of this database, so that those of another one leave their book alone.
CREATE TABLE IF NOT EXISTS fleet (
    number TINYINT NOT NULL PRIMARY KEY,
    id BIGINT NOT NULL
) ENGINE = InnoDB;

-- 60 bits: what is read back fits any integer.
INSERT INTO fleet (number, id)
SELECT 1, CAST(CONV(LEFT(SHA2(CONCAT(UUID(), RAND(), CONNECTION_ID()), 256), 15), 16, 10) AS SIGNED) FROM DUAL
WHERE NOT EXISTS (SELECT 1 FROM fleet);

-- The engine time at which a shard's newest entry ended.
CREATE TABLE IF NOT EXISTS shard_end (
    shard SMALLINT NOT NULL PRIMARY KEY,
    ended_at BIGINT NOT NULL
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS gateway (
    id BIGINT NOT NULL PRIMARY KEY,
    seen_at BIGINT NOT NULL
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS shard_epoch (
    shard SMALLINT NOT NULL PRIMARY KEY,
    epoch BIGINT NOT NULL,
    -- 0 first use, 1 the tail was lost, 2 everything was.
    loss SMALLINT NOT NULL,
    -- 0 begun, 1 gateways restore, 2 open.
    stage SMALLINT NOT NULL,
    -- Entries up to this place are in the sums that were written.
    watermark BIGINT NOT NULL,
    staged_at BIGINT NOT NULL
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS shard_lease (
    shard SMALLINT NOT NULL PRIMARY KEY,
    holder BIGINT NOT NULL,
    until BIGINT NOT NULL
) ENGINE = InnoDB;

-- The gateways that lived when an epoch began, and those that told what they restored for it.
CREATE TABLE IF NOT EXISTS restorer (
    shard SMALLINT NOT NULL,
    epoch BIGINT NOT NULL,
    gateway BIGINT NOT NULL,
    awaited SMALLINT NOT NULL,
    reported SMALLINT NOT NULL,
    held BIGINT NOT NULL,
    ended BIGINT NOT NULL,
    failed BIGINT NOT NULL,
    PRIMARY KEY (shard, epoch, gateway)
) ENGINE = InnoDB;
