-- Inserts keys; what is there already is left as it is. The row of parameters is repeated to the number of rows that one
-- execution takes (see `sql.rs`); rows whose reservation is null are padding.
INSERT INTO entry_key (reservation, side, attempt, seq, unbooked, place, ended_at)
SELECT * FROM (
    VALUES (?, ?, ?, ?, ?, ?, ?)
)
WHERE column1 IS NOT NULL
ON CONFLICT (reservation, side, attempt, seq, unbooked) DO NOTHING
