-- Inserts entries' rows. The row of parameters is repeated to the number of rows that one execution takes (see `sql.rs`); rows
-- whose place is null are padding.
INSERT INTO entry_row (
    place, reservation, side, attempt, seq, unbooked, origin, admitted_at, ended_at, requests, request_id, tenant, pool,
    posted, body
)
SELECT * FROM (
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
)
WHERE column1 IS NOT NULL
