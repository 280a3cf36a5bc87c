SELECT min(ended_at) AS ended_at FROM entry_row WHERE ended_at >= ?1
