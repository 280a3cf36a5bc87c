-- What a tenant's calls admitted from ?1 up to but not including ?2 used; an empty name matches all.
-- Calls of which an entry posted to account (?10, ?11) are left out; nulls leave out none.
SELECT
    coalesce(sum(requests), 0) AS requests, coalesce(sum(input), 0) AS input, coalesce(sum(cached), 0) AS cached,
    coalesce(sum(cache_write), 0) AS cache_write, coalesce(sum(cache_write_1h), 0) AS cache_write_1h,
    coalesce(sum(output), 0) AS output, coalesce(sum(reasoning), 0) AS reasoning,
    coalesce(sum(audio_input), 0) AS audio_input, coalesce(sum(audio_output), 0) AS audio_output,
    coalesce(sum(image_input), 0) AS image_input, coalesce(sum(web_searches), 0) AS web_searches,
    coalesce(sum(cost_nano), 0) AS cost_nano
FROM journal AS call
WHERE admitted_at >= ?1 AND admitted_at < ?2 AND side = 0 AND tenant = ?3 AND (?4 = '' OR pool = ?4)
    AND unbooked = 0
    AND (?5 = '' OR project = ?5) AND (?6 = '' OR key_id = ?6) AND (?7 = '' OR service = ?7)
    AND (?8 = '' OR end_user = ?8) AND (?9 = '' OR model_used = ?9)
    AND NOT EXISTS (
        SELECT 1 FROM entry_key CROSS JOIN entry_row ON entry_row.place = entry_key.place, json_each(entry_row.posted) AS leg
        WHERE entry_key.reservation = unhex(call.reservation) AND entry_key.side = call.side
            AND leg.value ->> 0 = ?10 AND leg.value ->> 1 = ?11
    )
