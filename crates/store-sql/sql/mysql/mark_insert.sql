-- The row of parameters is repeated to the number of rows that one execution takes (see `sql.rs`).
INSERT INTO object_mark (mark, kind, tenant, project, id)
VALUES (?, ?, ?, ?, ?)
