SELECT version, first_at, document FROM price_book WHERE version = ?1
