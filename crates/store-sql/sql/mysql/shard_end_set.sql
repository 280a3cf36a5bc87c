-- Notes the newest end of shards, given as a JSON array of [shard, ended_at].
INSERT INTO shard_end (shard, ended_at)
SELECT line.shard, line.ended_at
FROM JSON_TABLE(?1, '$[*]' COLUMNS (shard BIGINT PATH '$[0]', ended_at BIGINT PATH '$[1]')) AS line
ON DUPLICATE KEY UPDATE ended_at = GREATEST(shard_end.ended_at, VALUES(ended_at))
