-- What calls admitted from ?1 up to but not including ?2 used, on side ?3, found by tenant; an empty name matches all.
-- Calls of which an entry posted to account (?11, ?12) are left out; nulls leave out none.
SELECT
    coalesce(sum(requests), 0) AS requests, coalesce(sum(input), 0) AS input, coalesce(sum(cached), 0) AS cached,
    coalesce(sum(cache_write), 0) AS cache_write, coalesce(sum(cache_write_1h), 0) AS cache_write_1h,
    coalesce(sum(output), 0) AS output, coalesce(sum(reasoning), 0) AS reasoning,
    coalesce(sum(audio_input), 0) AS audio_input, coalesce(sum(audio_output), 0) AS audio_output,
    coalesce(sum(image_input), 0) AS image_input, coalesce(sum(web_searches), 0) AS web_searches,
    coalesce(sum(cost_nano), 0) AS cost_nano
FROM entry
WHERE admitted_at >= ?1 AND admitted_at < ?2 AND side = ?3 AND tenant = ?4 AND (?5 = '' OR pool = ?5)
    AND unbooked = 0
    AND (?6 = '' OR project = ?6) AND (?7 = '' OR key_id = ?7) AND (?8 = '' OR service = ?8)
    AND (?9 = '' OR end_user = ?9) AND (?10 = '' OR model_used = ?10)
    AND NOT EXISTS (
        SELECT 1 FROM entry AS other JOIN posted ON posted.place = other.place
        WHERE other.reservation = entry.reservation AND other.side = entry.side
            AND posted.subject = ?11 AND posted.account = ?12
    )
