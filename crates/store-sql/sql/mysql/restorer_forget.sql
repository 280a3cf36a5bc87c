DELETE FROM restorer WHERE shard = ?1 AND epoch < ?2
