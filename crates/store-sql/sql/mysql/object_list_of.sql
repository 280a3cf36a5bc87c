SELECT kind, tenant, project, id, version, document, created_at, changed_at
FROM object
WHERE kind = ?1
ORDER BY tenant, project, id
