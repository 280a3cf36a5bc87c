-- Inserts entries; what is there already is left as it is. The row of parameters is repeated to the number of rows that one
-- execution takes (see `sql.rs`); rows whose reservation is null are padding.
INSERT INTO entry (
    reservation, side, attempt, seq, unbooked, origin, admitted_at, ended_at, requests, request_id, tenant, pool, posted,
    body
)
SELECT * FROM (
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
)
WHERE column1 IS NOT NULL
ON CONFLICT (reservation, side, attempt, seq, unbooked) DO NOTHING
