-- Epoch ?3 of shard ?1 begins with loss ?4, for gateway ?2 if it holds the lease, after epoch ?5 (0: none)
-- in stage ?6. The sums that were written last stand until everything is lost (2).
INSERT INTO shard_epoch (shard, epoch, loss, stage, watermark, staged_at)
SELECT ?1, ?3, ?4, 0, 0, CAST(unixepoch('subsec') * 1000 AS INTEGER)
WHERE EXISTS (
        SELECT 1 FROM shard_lease
        WHERE shard = ?1 AND holder = ?2 AND until > CAST(unixepoch('subsec') * 1000 AS INTEGER)
    )
    AND ?5 = coalesce((SELECT epoch FROM shard_epoch WHERE shard = ?1), 0)
    AND ?6 = coalesce((SELECT stage FROM shard_epoch WHERE shard = ?1), ?6)
ON CONFLICT (shard) DO UPDATE SET
    epoch = excluded.epoch, loss = excluded.loss, stage = 0, staged_at = excluded.staged_at,
    watermark = CASE excluded.loss WHEN 2 THEN 0 ELSE watermark END
