UPDATE shard_epoch SET stage = ?3, staged_at = CAST(unixepoch('subsec') * 1000 AS INTEGER)
WHERE shard = ?1 AND epoch = ?2 AND stage < ?3
