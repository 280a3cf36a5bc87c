-- Today, the newest end, and the newest place of ?1 days ago.
SELECT CAST(UNIX_TIMESTAMP() DIV 86400 AS SIGNED) AS today,
    COALESCE((SELECT MAX(ended_at) FROM shard_end), 0) AS newest_end,
    COALESCE((SELECT MAX(place) FROM journal_day WHERE day <= UNIX_TIMESTAMP() DIV 86400 - ?1), 0) AS settled
