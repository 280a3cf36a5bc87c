-- What was posted to the accounts of shard ?1, for periods that start at or after ?2 and for lifetime ones (0).
SELECT subject, account, period, amount FROM posted
WHERE shard = ?1 AND (period >= ?2 OR period = 0)
ORDER BY subject, account, period
