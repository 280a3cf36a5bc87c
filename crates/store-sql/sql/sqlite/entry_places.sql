-- Which of the keys, given as a JSON array of [reservation, side, attempt, seq, unbooked], are there, and where.
WITH wanted AS MATERIALIZED (SELECT key AS number, value FROM json_each(?1))
SELECT wanted.number, entry.place
FROM wanted CROSS JOIN entry
WHERE entry.reservation = unhex(wanted.value ->> 0) AND entry.side = wanted.value ->> 1
    AND entry.attempt = wanted.value ->> 2 AND entry.seq = wanted.value ->> 3
    AND entry.unbooked = wanted.value ->> 4
