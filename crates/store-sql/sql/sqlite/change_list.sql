SELECT number, at, who, kind, tenant, project, id, before, after
FROM change
WHERE number < ?1
ORDER BY number DESC
LIMIT ?2
