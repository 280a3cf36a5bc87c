-- Inserts a batch, given as a JSON array of objects; returns the rows that were not there yet.
INSERT INTO entry (
    reservation, side, attempt, seq, unbooked, origin, day, admitted_at, ended_at, requests,
    request_id, tenant, project, key_id, service, end_user, model_asked, model_priced, model_used, pool,
    input, cached, cache_write, cache_write_1h, output, reasoning, audio_input, audio_output, image_input,
    web_searches, cost_nano, price_version,
    hold_input, hold_expected, hold_worst, hold_expected_cost_nano, hold_worst_cost_nano, charged_on_expiry,
    figures, ending, overrun_llm_tokens, overrun_cost_nano, ladder, latency_ms, ttft_ms, attempts, flags
)
SELECT
    unhex(value ->> 'reservation'), value ->> 'side', value ->> 'attempt', value ->> 'seq', value ->> 'unbooked',
    value ->> 'origin', value ->> 'day', value ->> 'admitted_at', value ->> 'ended_at', value ->> 'requests',
    value ->> 'request_id', value ->> 'tenant', value ->> 'project', value ->> 'key_id', value ->> 'service',
    value ->> 'end_user', value ->> 'model_asked', value ->> 'model_priced', value ->> 'model_used',
    value ->> 'pool',
    value ->> 'input', value ->> 'cached', value ->> 'cache_write', value ->> 'cache_write_1h', value ->> 'output',
    value ->> 'reasoning', value ->> 'audio_input', value ->> 'audio_output', value ->> 'image_input',
    value ->> 'web_searches', value ->> 'cost_nano', value ->> 'price_version',
    value ->> 'hold_input', value ->> 'hold_expected', value ->> 'hold_worst', value ->> 'hold_expected_cost_nano',
    value ->> 'hold_worst_cost_nano', value ->> 'charged_on_expiry',
    value ->> 'figures', value ->> 'ending', value ->> 'overrun_llm_tokens', value ->> 'overrun_cost_nano',
    value -> 'ladder', value ->> 'latency_ms', value ->> 'ttft_ms', value ->> 'attempts', value ->> 'flags'
FROM json_each(?1)
WHERE true
ON CONFLICT (reservation, side, attempt, seq, unbooked) DO NOTHING
RETURNING place, reservation, side, attempt, seq, unbooked
