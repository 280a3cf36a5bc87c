-- After (?1, ?2, ?3). A comparison of whole keys would use no index.
SELECT tenant, limit_name, version, seen_at, digest, definition
FROM limit_history
WHERE tenant >= ?1
    AND (tenant > ?1 OR (tenant = ?1 AND (limit_name > ?2 OR (limit_name = ?2 AND version > ?3))))
ORDER BY tenant, limit_name, version
LIMIT ?4
