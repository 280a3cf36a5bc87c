-- The row of parameters is repeated to the number of rows that one execution takes (see `sql.rs`).
INSERT INTO object (kind, tenant, project, id, version, document, created_at, changed_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (kind, tenant, project, id) DO UPDATE SET
    version = excluded.version, document = excluded.document, changed_at = excluded.changed_at
