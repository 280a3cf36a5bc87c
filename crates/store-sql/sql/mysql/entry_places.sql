-- Which of the keys, given as a JSON array of [reservation, side, attempt, seq, unbooked], are there, and where.
SELECT CAST(wanted.number - 1 AS SIGNED) AS number, entry.place
FROM JSON_TABLE(?1, '$[*]' COLUMNS (
    number FOR ORDINALITY, reservation CHAR(32) PATH '$[0]', side BIGINT PATH '$[1]', attempt BIGINT PATH '$[2]',
    seq BIGINT PATH '$[3]', unbooked BIGINT PATH '$[4]'
)) AS wanted
STRAIGHT_JOIN entry ON entry.reservation = UNHEX(wanted.reservation) AND entry.side = wanted.side
    AND entry.attempt = wanted.attempt AND entry.seq = wanted.seq AND entry.unbooked = wanted.unbooked
