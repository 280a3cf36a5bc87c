INSERT INTO restorer (shard, epoch, gateway, awaited, reported, held, ended, failed)
VALUES (?1, ?2, ?3, 0, 1, ?4, ?5, ?6)
ON DUPLICATE KEY UPDATE reported = 1, held = VALUES(held), ended = VALUES(ended), failed = VALUES(failed)
