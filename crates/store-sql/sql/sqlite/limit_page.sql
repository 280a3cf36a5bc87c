SELECT tenant, limit_name, version, seen_at, digest, definition
FROM limit_history
WHERE (tenant, limit_name, version) > (?1, ?2, ?3)
ORDER BY tenant, limit_name, version
LIMIT ?4
