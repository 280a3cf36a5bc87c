-- The row of parameters is repeated to the number of rows that one execution takes (see `sql.rs`).
DELETE FROM object_mark WHERE mark IN ((?))
