SELECT shard, epoch, loss, stage, watermark, CAST(unixepoch('subsec') * 1000 AS INTEGER) - staged_at AS age
FROM shard_epoch ORDER BY shard
