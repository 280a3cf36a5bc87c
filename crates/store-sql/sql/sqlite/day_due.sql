-- Today, the newest end, and the newest place of ?1 days ago.
SELECT unixepoch() / 86400 AS today, coalesce((SELECT max(ended_at) FROM shard_end), 0) AS newest_end,
    coalesce((SELECT max(place) FROM journal_day WHERE day <= unixepoch() / 86400 - ?1), 0) AS settled
