-- Adds to daily totals, given as a JSON array of objects. Sums stay at the largest integer instead of becoming reals.
-- Each line is taken out of the array once, not once per column.
WITH line AS MATERIALIZED (SELECT value FROM jsonb_each(?1))
INSERT INTO total (
    day, side, tenant, pool, model, entries, requests, input, cached, cache_write, cache_write_1h, output, reasoning,
    audio_input, audio_output, image_input, web_searches, cost_nano
)
SELECT
    value ->> 'day', value ->> 'side', value ->> 'tenant', value ->> 'pool', value ->> 'model',
    value ->> 'entries', value ->> 'requests', value ->> 'input', value ->> 'cached', value ->> 'cache_write',
    value ->> 'cache_write_1h', value ->> 'output', value ->> 'reasoning', value ->> 'audio_input',
    value ->> 'audio_output', value ->> 'image_input', value ->> 'web_searches', value ->> 'cost_nano'
FROM line
WHERE true
ON CONFLICT (day, side, tenant, pool, model) DO UPDATE SET
    entries = entries + excluded.entries,
    requests = requests + excluded.requests,
    input = max(-9223372036854775807, min(9223372036854775807, input + excluded.input)),
    cached = max(-9223372036854775807, min(9223372036854775807, cached + excluded.cached)),
    cache_write = max(-9223372036854775807, min(9223372036854775807, cache_write + excluded.cache_write)),
    cache_write_1h = max(-9223372036854775807, min(9223372036854775807, cache_write_1h + excluded.cache_write_1h)),
    output = max(-9223372036854775807, min(9223372036854775807, output + excluded.output)),
    reasoning = max(-9223372036854775807, min(9223372036854775807, reasoning + excluded.reasoning)),
    audio_input = max(-9223372036854775807, min(9223372036854775807, audio_input + excluded.audio_input)),
    audio_output = max(-9223372036854775807, min(9223372036854775807, audio_output + excluded.audio_output)),
    image_input = max(-9223372036854775807, min(9223372036854775807, image_input + excluded.image_input)),
    web_searches = max(-9223372036854775807, min(9223372036854775807, web_searches + excluded.web_searches)),
    cost_nano = max(-9223372036854775807, min(9223372036854775807, cost_nano + excluded.cost_nano))
