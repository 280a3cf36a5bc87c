-- Adds to daily totals, given as a JSON array of objects. Sums stay at the largest integer.
INSERT INTO total (
    day, side, tenant, pool, model, entries, requests, input, cached, cache_write, cache_write_1h, output, reasoning,
    audio_input, audio_output, image_input, web_searches, cost_nano
)
SELECT
    line.day, line.side, line.tenant, line.pool, line.model, line.entries, line.requests, line.input, line.cached,
    line.cache_write, line.cache_write_1h, line.output, line.reasoning, line.audio_input, line.audio_output,
    line.image_input, line.web_searches, line.cost_nano
FROM JSON_TABLE(?1, '$[*]' COLUMNS (
    day BIGINT PATH '$.day', side BIGINT PATH '$.side', tenant VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.tenant',
    pool VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.pool', model VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.model', entries BIGINT PATH '$.entries',
    requests BIGINT PATH '$.requests', input BIGINT PATH '$.input', cached BIGINT PATH '$.cached',
    cache_write BIGINT PATH '$.cache_write', cache_write_1h BIGINT PATH '$.cache_write_1h',
    output BIGINT PATH '$.output', reasoning BIGINT PATH '$.reasoning', audio_input BIGINT PATH '$.audio_input',
    audio_output BIGINT PATH '$.audio_output', image_input BIGINT PATH '$.image_input',
    web_searches BIGINT PATH '$.web_searches', cost_nano BIGINT PATH '$.cost_nano'
)) AS line
ON DUPLICATE KEY UPDATE
    entries = total.entries + VALUES(entries),
    requests = total.requests + VALUES(requests),
    input = GREATEST(-9223372036854775807, LEAST(9223372036854775807, CAST(total.input AS DECIMAL(20)) + VALUES(input))),
    cached = GREATEST(-9223372036854775807, LEAST(9223372036854775807, CAST(total.cached AS DECIMAL(20)) + VALUES(cached))),
    cache_write = GREATEST(-9223372036854775807, LEAST(9223372036854775807, CAST(total.cache_write AS DECIMAL(20)) + VALUES(cache_write))),
    cache_write_1h = GREATEST(-9223372036854775807, LEAST(9223372036854775807, CAST(total.cache_write_1h AS DECIMAL(20)) + VALUES(cache_write_1h))),
    output = GREATEST(-9223372036854775807, LEAST(9223372036854775807, CAST(total.output AS DECIMAL(20)) + VALUES(output))),
    reasoning = GREATEST(-9223372036854775807, LEAST(9223372036854775807, CAST(total.reasoning AS DECIMAL(20)) + VALUES(reasoning))),
    audio_input = GREATEST(-9223372036854775807, LEAST(9223372036854775807, CAST(total.audio_input AS DECIMAL(20)) + VALUES(audio_input))),
    audio_output = GREATEST(-9223372036854775807, LEAST(9223372036854775807, CAST(total.audio_output AS DECIMAL(20)) + VALUES(audio_output))),
    image_input = GREATEST(-9223372036854775807, LEAST(9223372036854775807, CAST(total.image_input AS DECIMAL(20)) + VALUES(image_input))),
    web_searches = GREATEST(-9223372036854775807, LEAST(9223372036854775807, CAST(total.web_searches AS DECIMAL(20)) + VALUES(web_searches))),
    cost_nano = GREATEST(-9223372036854775807, LEAST(9223372036854775807, CAST(total.cost_nano AS DECIMAL(20)) + VALUES(cost_nano)))
