-- Every gateway seen within ?3 milliseconds is awaited for epoch ?2 of shard ?1.
INSERT INTO restorer (shard, epoch, gateway, awaited, reported, held, ended, failed)
SELECT ?1, ?2, id, 1, 0, 0, 0, 0 FROM gateway
WHERE seen_at > CAST(unixepoch('subsec') * 1000 AS INTEGER) - ?3
    AND seen_at <= CAST(unixepoch('subsec') * 1000 AS INTEGER) + ?3
ON CONFLICT (shard, epoch, gateway) DO NOTHING
