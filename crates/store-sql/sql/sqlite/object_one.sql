SELECT kind, tenant, project, id, version, document, created_at, changed_at
FROM object
WHERE kind = ?1 AND tenant = ?2 AND project = ?3 AND id = ?4
