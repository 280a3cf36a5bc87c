DELETE FROM shard_lease WHERE shard = ?1 AND holder = ?2
