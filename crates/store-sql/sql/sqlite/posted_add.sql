-- Adds to what was posted, given as a JSON array of [subject, account, period, amount, shard].
WITH line AS MATERIALIZED (SELECT value FROM jsonb_each(?1))
INSERT INTO posted (subject, account, period, amount, shard)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4
FROM line
WHERE true
ON CONFLICT (subject, account, period) DO UPDATE SET
    amount = max(-9223372036854775807, min(9223372036854775807, amount + excluded.amount)),
    shard = coalesce(excluded.shard, shard)
