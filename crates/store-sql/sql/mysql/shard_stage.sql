UPDATE shard_epoch SET stage = ?3, staged_at = CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)
WHERE shard = ?1 AND epoch = ?2 AND stage < ?3
