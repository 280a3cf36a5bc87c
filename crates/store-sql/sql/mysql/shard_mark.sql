UPDATE shard_epoch SET watermark = ?3 WHERE shard = ?1 AND epoch = ?2 AND stage = 0
