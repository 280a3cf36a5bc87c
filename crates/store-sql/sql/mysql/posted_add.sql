-- Adds to what was posted, given as a JSON array of [subject, account, period, amount, shard].
INSERT INTO posted (subject, account, period, amount, shard)
SELECT line.subject, line.account, line.period, line.amount, line.shard
FROM JSON_TABLE(?1, '$[*]' COLUMNS (
    subject BIGINT PATH '$[0]', account BIGINT PATH '$[1]', period BIGINT PATH '$[2]', amount BIGINT PATH '$[3]',
    shard BIGINT PATH '$[4]'
)) AS line
ON DUPLICATE KEY UPDATE
    amount = GREATEST(-9223372036854775807, LEAST(9223372036854775807, CAST(posted.amount AS DECIMAL(20)) + VALUES(amount))),
    shard = COALESCE(VALUES(shard), posted.shard)
