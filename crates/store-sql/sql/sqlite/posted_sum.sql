SELECT coalesce(sum(amount), 0) FROM posted WHERE subject = ?1 AND account = ?2 AND period = ?3
