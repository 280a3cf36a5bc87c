SELECT COUNT(*) AS entries, COALESCE(MAX(place), 0) AS newest FROM entry_row WHERE ended_at >= ?1 AND ended_at < ?2
