-- The row of parameters is repeated to the number of rows that one execution takes (see `sql.rs`).
INSERT INTO `change` (number, at, who, kind, tenant, project, id, `before`, after)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
