SELECT shard, epoch, loss, stage, watermark, CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED) - staged_at AS age
FROM shard_epoch ORDER BY shard
