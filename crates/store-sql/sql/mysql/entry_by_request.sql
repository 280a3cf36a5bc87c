SELECT * FROM entry WHERE request_id = ?1 ORDER BY place LIMIT ?2
