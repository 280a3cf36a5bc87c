-- Which of the keys, given as a JSON array of [reservation, side, attempt, seq, unbooked], are there, and where.
SELECT CAST(wanted.number - 1 AS SIGNED) AS number, entry_key.place
FROM JSON_TABLE(?1, '$[*]' COLUMNS (
    number FOR ORDINALITY, reservation CHAR(32) PATH '$[0]', side BIGINT PATH '$[1]', attempt BIGINT PATH '$[2]',
    seq BIGINT PATH '$[3]', unbooked BIGINT PATH '$[4]'
)) AS wanted
STRAIGHT_JOIN entry_key ON entry_key.reservation = UNHEX(wanted.reservation) AND entry_key.side = wanted.side
    AND entry_key.attempt = wanted.attempt AND entry_key.seq = wanted.seq AND entry_key.unbooked = wanted.unbooked
