-- What a pool's calls admitted from ?1 up to but not including ?2 used; an empty name matches all.
-- Calls of which an entry posted to account (?10, ?11) are left out; nulls leave out none.
SELECT
    CAST(COALESCE(SUM(requests), 0) AS SIGNED) AS requests, CAST(COALESCE(SUM(input), 0) AS SIGNED) AS input,
    CAST(COALESCE(SUM(cached), 0) AS SIGNED) AS cached, CAST(COALESCE(SUM(cache_write), 0) AS SIGNED) AS cache_write,
    CAST(COALESCE(SUM(cache_write_1h), 0) AS SIGNED) AS cache_write_1h,
    CAST(COALESCE(SUM(output), 0) AS SIGNED) AS output, CAST(COALESCE(SUM(reasoning), 0) AS SIGNED) AS reasoning,
    CAST(COALESCE(SUM(audio_input), 0) AS SIGNED) AS audio_input,
    CAST(COALESCE(SUM(audio_output), 0) AS SIGNED) AS audio_output,
    CAST(COALESCE(SUM(image_input), 0) AS SIGNED) AS image_input,
    CAST(COALESCE(SUM(web_searches), 0) AS SIGNED) AS web_searches,
    CAST(COALESCE(SUM(cost_nano), 0) AS SIGNED) AS cost_nano
FROM journal AS used
WHERE admitted_at >= ?1 AND admitted_at < ?2 AND side = 1 AND (LENGTH(?3) = 0 OR tenant = ?3) AND pool = ?4
    AND unbooked = 0
    AND (LENGTH(?5) = 0 OR project = ?5) AND (LENGTH(?6) = 0 OR key_id = ?6) AND (LENGTH(?7) = 0 OR service = ?7)
    AND (LENGTH(?8) = 0 OR end_user = ?8) AND (LENGTH(?9) = 0 OR model_used = ?9)
    AND NOT EXISTS (
        -- A leg is written as `[subject,account,…`.
        SELECT 1 FROM entry_key
        STRAIGHT_JOIN entry_row ON entry_row.place = entry_key.place AND entry_row.ended_at = entry_key.ended_at
        WHERE entry_key.reservation = UNHEX(used.reservation) AND entry_key.side = used.side
            AND LOCATE(CONCAT('[', ?10, ',', ?11, ','), entry_row.posted) > 0
    )
