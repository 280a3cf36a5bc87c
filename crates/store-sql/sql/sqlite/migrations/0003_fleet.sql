-- What the gateways of one shared book tell each other: who lives, which epoch a shard has, who makes one whole again.
-- Instants are milliseconds of this database's clock.

-- Names the gateways of this file, so that those of another one leave their book alone.
CREATE TABLE fleet (
    number INTEGER PRIMARY KEY CHECK (number = 1),
    id INTEGER NOT NULL
) STRICT;
INSERT INTO fleet (number, id) VALUES (1, random());

-- Which shard an account is in. For what was posted before this layout, it is found from the entries when the file is opened.
ALTER TABLE posted ADD COLUMN shard INTEGER;
CREATE INDEX posted_by_shard ON posted (shard, period);

-- The engine time at which a shard's newest entry ended.
CREATE TABLE shard_end (
    shard INTEGER PRIMARY KEY CHECK (shard BETWEEN 0 AND 255),
    ended_at INTEGER NOT NULL
) STRICT;

CREATE TABLE gateway (
    id INTEGER PRIMARY KEY,
    seen_at INTEGER NOT NULL
) STRICT;

CREATE TABLE shard_epoch (
    shard INTEGER PRIMARY KEY CHECK (shard BETWEEN 0 AND 255),
    epoch INTEGER NOT NULL CHECK (epoch > 0),
    -- 0 first use, 1 the tail was lost, 2 everything was.
    loss INTEGER NOT NULL CHECK (loss BETWEEN 0 AND 2),
    -- 0 begun, 1 gateways restore, 2 open.
    stage INTEGER NOT NULL CHECK (stage BETWEEN 0 AND 2),
    -- Entries up to this place are in the sums that were written.
    watermark INTEGER NOT NULL,
    staged_at INTEGER NOT NULL
) STRICT;

CREATE TABLE shard_lease (
    shard INTEGER PRIMARY KEY CHECK (shard BETWEEN 0 AND 255),
    holder INTEGER NOT NULL,
    until INTEGER NOT NULL
) STRICT;

-- The gateways that lived when an epoch began, and those that told what they restored for it.
CREATE TABLE restorer (
    shard INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    gateway INTEGER NOT NULL,
    awaited INTEGER NOT NULL CHECK (awaited IN (0, 1)),
    reported INTEGER NOT NULL CHECK (reported IN (0, 1)),
    held INTEGER NOT NULL,
    ended INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    PRIMARY KEY (shard, epoch, gateway)
) STRICT, WITHOUT ROWID;
