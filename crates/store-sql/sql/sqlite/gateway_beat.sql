INSERT INTO gateway (id, seen_at) VALUES (?1, CAST(unixepoch('subsec') * 1000 AS INTEGER))
ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at
