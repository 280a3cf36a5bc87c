-- Every gateway seen within ?3 milliseconds is awaited for epoch ?2 of shard ?1.
INSERT INTO restorer (shard, epoch, gateway, awaited, reported, held, ended, failed)
SELECT ?1, ?2, id, 1, 0, 0, 0, 0 FROM gateway
WHERE seen_at > CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED) - ?3
    AND seen_at <= CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED) + ?3
    AND NOT EXISTS (
        SELECT 1 FROM restorer AS known WHERE known.shard = ?1 AND known.epoch = ?2 AND known.gateway = gateway.id
    )
