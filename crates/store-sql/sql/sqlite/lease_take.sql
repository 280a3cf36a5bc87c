-- Takes the lease of shard ?1 for gateway ?2 for ?3 milliseconds, if nobody has it.
INSERT INTO shard_lease (shard, holder, until)
SELECT ?1, ?2, CAST(unixepoch('subsec') * 1000 AS INTEGER) + ?3
WHERE NOT EXISTS (SELECT 1 FROM shard_lease WHERE shard = ?1)
