DELETE FROM shard_lease WHERE shard = ?1
