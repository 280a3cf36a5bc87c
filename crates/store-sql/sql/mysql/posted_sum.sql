SELECT amount FROM posted WHERE subject = ?1 AND account = ?2 AND period = ?3
