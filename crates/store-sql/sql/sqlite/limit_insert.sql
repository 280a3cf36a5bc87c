INSERT INTO limit_history (limit_name, version, seen_at, digest, definition) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (limit_name, version) DO NOTHING
