INSERT INTO restorer (shard, epoch, gateway, awaited, reported, held, ended, failed)
VALUES (?1, ?2, ?3, 0, 1, ?4, ?5, ?6)
ON CONFLICT (shard, epoch, gateway) DO UPDATE SET
    reported = 1, held = excluded.held, ended = excluded.ended, failed = excluded.failed
