-- Notes the newest end of shards, given as a JSON array of [shard, ended_at].
INSERT INTO shard_end (shard, ended_at)
SELECT value ->> 0, value ->> 1 FROM json_each(?1)
WHERE true
ON CONFLICT (shard) DO UPDATE SET ended_at = excluded.ended_at WHERE excluded.ended_at > ended_at
