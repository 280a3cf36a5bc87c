-- Inserts entries that are not there yet. The row of parameters is repeated to the number of rows that one execution takes
-- (see `sql.rs`).
INSERT INTO entry (
    reservation, side, attempt, seq, unbooked, origin, admitted_at, ended_at, requests, request_id, tenant, pool, posted,
    body
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
