-- The first use of shard ?1; not where the journal knows calls of it.
INSERT INTO shard_epoch (shard, epoch, loss, stage, watermark, staged_at)
SELECT ?1, 1, 0, 0, 0, CAST(unixepoch('subsec') * 1000 AS INTEGER)
WHERE NOT EXISTS (SELECT 1 FROM shard_end WHERE shard = ?1)
ON CONFLICT (shard) DO NOTHING
