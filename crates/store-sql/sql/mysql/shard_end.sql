SELECT ended_at FROM shard_end WHERE shard = ?1
