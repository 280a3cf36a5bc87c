UPDATE shard_epoch SET stage = ?3 WHERE shard = ?1 AND epoch = ?2 AND stage < ?3
