INSERT INTO limit_history (limit_name, version, seen_at, digest, definition)
SELECT ?1, ?2, ?3, ?4, ?5 FROM DUAL
WHERE NOT EXISTS (SELECT 1 FROM limit_history WHERE limit_name = ?1 AND version = ?2)
