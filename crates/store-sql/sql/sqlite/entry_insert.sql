-- Inserts a batch, given as a JSON array of arrays; what is there already is left as it is.
-- Each line is taken out of the array once, not once per column.
WITH line AS MATERIALIZED (SELECT value FROM jsonb_each(?1))
INSERT INTO entry (
    reservation, side, attempt, seq, unbooked, origin, admitted_at, ended_at, requests, request_id, tenant, pool, posted,
    body
)
SELECT
    unhex(value ->> 0), value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7,
    value ->> 8, value ->> 9, value ->> 10, value ->> 11, value -> 12, value -> 13
FROM line
WHERE true
ON CONFLICT (reservation, side, attempt, seq, unbooked) DO NOTHING
