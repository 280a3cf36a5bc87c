-- Of kind ?1, the names from (?2, ?3, ?4) up to but not including (?5, ?6, ?7).
SELECT kind, tenant, project, id, version, document, created_at, changed_at
FROM object
WHERE kind = ?1 AND (tenant, project, id) >= (?2, ?3, ?4) AND (tenant, project, id) < (?5, ?6, ?7)
ORDER BY tenant, project, id
LIMIT ?8
