SELECT * FROM entry_row WHERE request_id = ?1 ORDER BY place LIMIT ?2
