SELECT limit_name, version, seen_at, digest, definition
FROM limit_history
WHERE tenant = ?1
ORDER BY limit_name, version
