INSERT INTO limit_history (tenant, limit_name, version, seen_at, digest, definition)
SELECT ?1, ?2, ?3, ?4, ?5, ?6 FROM DUAL
WHERE NOT EXISTS (SELECT 1 FROM limit_history WHERE tenant = ?1 AND limit_name = ?2 AND version = ?3)
