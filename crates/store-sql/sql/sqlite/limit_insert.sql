INSERT INTO limit_history (tenant, limit_name, version, seen_at, digest, definition) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (tenant, limit_name, version) DO NOTHING
