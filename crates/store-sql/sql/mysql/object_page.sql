-- Of kind ?1, the names from (?2, ?3, ?4) up to but not including (?5, ?6, ?7). A comparison of whole names would use no index.
SELECT kind, tenant, project, id, version, document, created_at, changed_at
FROM object
WHERE kind = ?1 AND tenant >= ?2 AND tenant <= ?5
    AND (tenant > ?2 OR (tenant = ?2 AND (project > ?3 OR (project = ?3 AND id >= ?4))))
    AND (tenant < ?5 OR (tenant = ?5 AND (project < ?6 OR (project = ?6 AND id < ?7))))
ORDER BY tenant, project, id
LIMIT ?8
