DELETE FROM object_mark WHERE kind = ?1 AND tenant = ?2 AND project = ?3 AND id = ?4
