-- Takes or keeps the lease of shard ?1 for gateway ?2 for ?3 milliseconds. One that would last longer than any can is of
-- a clock that has stepped back.
INSERT INTO shard_lease (shard, holder, until) VALUES (?1, ?2, CAST(unixepoch('subsec') * 1000 AS INTEGER) + ?3)
ON CONFLICT (shard) DO UPDATE SET holder = excluded.holder, until = excluded.until
WHERE holder = excluded.holder OR until <= CAST(unixepoch('subsec') * 1000 AS INTEGER)
    OR until > CAST(unixepoch('subsec') * 1000 AS INTEGER) + ?3
