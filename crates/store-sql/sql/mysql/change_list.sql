-- Of tenant ?1, or of all where it has no value; before change ?2.
SELECT number, at, who, kind, tenant, project, id, `before`, after
FROM `change`
WHERE (?1 IS NULL OR tenant = ?1) AND number < ?2
ORDER BY number DESC
LIMIT ?3
