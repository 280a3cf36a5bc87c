-- The row of parameters is repeated to the number of rows that one execution takes (see `sql.rs`).
INSERT INTO object (kind, tenant, project, id, version, document, created_at, changed_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON DUPLICATE KEY UPDATE version = VALUES(version), document = VALUES(document), changed_at = VALUES(changed_at)
