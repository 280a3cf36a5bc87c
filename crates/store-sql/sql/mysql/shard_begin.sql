-- Epoch ?3 of shard ?1 begins with loss ?4, for gateway ?2 if it holds the lease, after epoch ?5 (0: none)
-- in stage ?6. The sums that were written last stand until everything is lost (2).
INSERT INTO shard_epoch (shard, epoch, loss, stage, watermark, staged_at)
SELECT ?1, ?3, ?4, 0, 0, CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED) FROM DUAL
WHERE EXISTS (
        SELECT 1 FROM shard_lease
        WHERE shard = ?1 AND holder = ?2 AND until > CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)
    )
    AND ?5 = COALESCE((SELECT known.epoch FROM shard_epoch AS known WHERE known.shard = ?1), 0)
    AND ?6 = COALESCE((SELECT known.stage FROM shard_epoch AS known WHERE known.shard = ?1), ?6)
ON DUPLICATE KEY UPDATE
    epoch = VALUES(epoch), loss = VALUES(loss), stage = 0, staged_at = VALUES(staged_at),
    watermark = CASE VALUES(loss) WHEN 2 THEN 0 ELSE shard_epoch.watermark END
