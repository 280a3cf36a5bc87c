-- The first use of shard ?1; not where the journal knows calls of it.
INSERT INTO shard_epoch (shard, epoch, loss, stage, watermark, staged_at)
SELECT ?1, 1, 0, 0, 0, CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED) FROM DUAL
WHERE NOT EXISTS (SELECT 1 FROM shard_end WHERE shard = ?1)
    AND NOT EXISTS (SELECT 1 FROM shard_epoch AS known WHERE known.shard = ?1)
