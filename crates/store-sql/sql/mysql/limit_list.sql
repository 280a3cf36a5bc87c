SELECT limit_name, version, seen_at, digest, definition FROM limit_history ORDER BY limit_name, version
