SELECT gateway, awaited, reported, held, ended, failed FROM restorer WHERE shard = ?1 AND epoch = ?2 ORDER BY gateway
