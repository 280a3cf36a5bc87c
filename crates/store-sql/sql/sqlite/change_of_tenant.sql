SELECT number, at, who, kind, tenant, project, id, before, after
FROM change
WHERE tenant = ?1 AND number < ?2
ORDER BY number DESC
LIMIT ?3
