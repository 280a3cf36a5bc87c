-- Which of the keys, given as a JSON array of [reservation, side, attempt, seq, unbooked], are there, and where.
WITH wanted AS MATERIALIZED (SELECT key AS number, value FROM json_each(?1))
SELECT wanted.number, entry_key.place
FROM wanted CROSS JOIN entry_key
WHERE entry_key.reservation = unhex(wanted.value ->> 0) AND entry_key.side = wanted.value ->> 1
    AND entry_key.attempt = wanted.value ->> 2 AND entry_key.seq = wanted.value ->> 3
    AND entry_key.unbooked = wanted.value ->> 4
