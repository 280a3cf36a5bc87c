-- Takes the lease of shard ?1 for gateway ?2 for ?3 milliseconds, if nobody has it.
INSERT INTO shard_lease (shard, holder, until)
SELECT ?1, ?2, CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED) + ?3 FROM DUAL
WHERE NOT EXISTS (SELECT 1 FROM shard_lease WHERE shard = ?1)
