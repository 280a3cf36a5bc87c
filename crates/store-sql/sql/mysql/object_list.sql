SELECT kind, tenant, project, id, version, document, created_at, changed_at
FROM object
ORDER BY kind, tenant, project, id
