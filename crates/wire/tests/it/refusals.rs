//! Upstream refusals: class and waiting hint. Field cases B155 to B159.

use proptest::prelude::*;
use tollbook_wire::{Dialect, RefusalClass, WAIT_MS_MAX, classify_refusal};

/// 2026-11-30T12:00:00Z
const NOW: u64 = 1_796_040_000_000;

fn wait(headers: &[(&str, &str)]) -> Option<u64> {
    classify_refusal(Dialect::OpenAi, 429, headers, b"", NOW).wait_ms
}

fn class(dialect: Dialect, status: u16, body: &str) -> RefusalClass {
    classify_refusal(dialect, status, &[], body.as_bytes(), NOW).class
}

#[test]
fn b155_dates_and_junk() {
    let cases = [
        ("Mon, 30 Nov 2026 12:00:20 GMT", Some(20_000)),
        ("Mon, 30 Nov 2026 11:00:00 GMT", Some(0)),
        ("-5", None),
        ("", None),
        ("abc", None),
        ("99999999999999999999", Some(WAIT_MS_MAX)),
        ("NaN", None),
    ];
    for (value, want) in cases {
        assert_eq!(wait(&[("Retry-After", value)]), want, "{value}");
    }
    assert_eq!(wait(&[("retry-after", "1"), ("RETRY-AFTER", "30")]), Some(30_000));
    assert_eq!(wait(&[("retry-after", "abc"), ("retry-after", "3")]), Some(3_000));
    assert_eq!(wait(&[]), None);
}

#[test]
fn b156_fractions_and_milliseconds() {
    assert_eq!(wait(&[("retry-after", "1.5")]), Some(1_500));
    assert_eq!(wait(&[("retry-after", "1"), ("retry-after-ms", "250")]), Some(250));
    assert_eq!(wait(&[("retry-after", "0")]), Some(0));
    assert_eq!(wait(&[("retry-after-ms", "0.5")]), Some(1), "never less than asked");
    assert_eq!(wait(&[("retry-after", "2"), ("retry-after-ms", "soon")]), Some(2_000));
}

#[test]
fn b157_reset_durations() {
    let cases = [
        ("6m0s", Some(360_000)),
        ("20ms", Some(20)),
        ("1s", Some(1_000)),
        ("1m30.5s", Some(90_500)),
        ("2h15m", Some(8_100_000)),
        ("0s", Some(0)),
        ("60", Some(60_000)),
        ("1796040007", Some(7_000)),
        ("1705312200", Some(0)),
        ("6 minutes", None),
    ];
    for (value, want) in cases {
        let headers = [("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", value)];
        assert_eq!(wait(&headers), want, "{value}");
    }
    // The later reset of those used up; one with something left does not count.
    let both = [
        ("x-ratelimit-remaining-requests", "0"),
        ("x-ratelimit-reset-requests", "8s"),
        ("x-ratelimit-remaining-tokens", "0"),
        ("x-ratelimit-reset-tokens", "6m0s"),
    ];
    assert_eq!(wait(&both), Some(360_000));
    let left = [both[0], both[1], ("x-ratelimit-remaining-tokens", "9"), both[3]];
    assert_eq!(wait(&left), Some(8_000));
    // A retry hint goes before any reset.
    assert_eq!(wait(&[both[0], both[1], ("retry-after", "2")]), Some(2_000));
}

#[test]
fn b158_reset_timestamps() {
    let headers = [
        ("anthropic-ratelimit-requests-remaining", "0"),
        ("anthropic-ratelimit-requests-reset", "2026-11-30T12:00:08Z"),
        ("anthropic-ratelimit-tokens-remaining", "9000"),
        ("anthropic-ratelimit-tokens-reset", "2026-11-30T12:00:50Z"),
    ];
    let got = classify_refusal(Dialect::Anthropic, 429, &headers, b"", NOW);
    assert_eq!((got.class, got.wait_ms), (RefusalClass::Wait, Some(8_000)));
}

#[test]
fn b159_which_429_was_it() {
    let minute = r#"{"error":{"message":"Rate limit reached for gpt-test on tokens per min (TPM): Limit 60000. Please try again in 5s.","type":"tokens","param":null,"code":"rate_limit_exceeded"}}"#;
    let got = classify_refusal(Dialect::OpenAi, 429, &[("retry-after", "5")], minute.as_bytes(), NOW);
    assert_eq!((got.class, got.wait_ms), (RefusalClass::Wait, Some(5_000)));
    assert_eq!(got.facts.code, "rate_limit_exceeded");
    let spent = r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}"#;
    let got = classify_refusal(Dialect::OpenAi, 429, &[], spent.as_bytes(), NOW);
    assert_eq!((got.class, got.wait_ms), (RefusalClass::Permanent, None));
}

#[test]
fn classes_of_refusals() {
    use Dialect::{Anthropic, OpenAi};
    use RefusalClass as C;
    let cases = [
        (OpenAi, 429, "", C::Wait),
        (OpenAi, 429, "<html>too many</html>", C::Wait),
        (
            OpenAi,
            429,
            r#"{"error":{"message":"Limit reached on requests per day (RPD)","type":"requests","code":"rate_limit_exceeded"}}"#,
            C::ExhaustedUntil,
        ),
        (
            OpenAi,
            429,
            r#"{"error":{"message":"Request too large for gpt-test","type":"tokens","code":"rate_limit_exceeded"}}"#,
            C::TooLarge,
        ),
        (OpenAi, 413, "", C::TooLarge),
        (OpenAi, 503, r#"{"error":{"message":"Slow Down","type":"server_error","code":null}}"#, C::Ramp),
        (OpenAi, 503, r#"{"error":{"message":"Overloaded","type":"server_error","code":null}}"#, C::Overload),
        (OpenAi, 402, "{}", C::Permanent),
        (OpenAi, 429, r#"{"error":{"message":"x","type":"exceeded_current_quota_error"}}"#, C::Permanent),
        (OpenAi, 500, "", C::Other),
        (OpenAi, 401, "", C::Other),
        (
            OpenAi,
            400,
            r#"{"error":{"message":"too long","type":"invalid_request_error","code":"context_length_exceeded"}}"#,
            C::Other,
        ),
        (
            Anthropic,
            529,
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            C::Overload,
        ),
        (Anthropic, 429, r#"{"type":"error","error":{"type":"rate_limit_error","message":"x"}}"#, C::Wait),
        (
            Anthropic,
            429,
            r#"{"type":"error","error":{"type":"rate_limit_error","message":"x","details":{"error_code":"ramp_limit_exceeded"}}}"#,
            C::Ramp,
        ),
        (
            Anthropic,
            429,
            r#"{"type":"error","error":{"type":"rate_limit_error","message":"x","details":{"error_code":"enforced_spend_limit_reached"}}}"#,
            C::ExhaustedUntil,
        ),
        (Anthropic, 402, r#"{"type":"error","error":{"type":"billing_error","message":"x"}}"#, C::Permanent),
        (
            Anthropic,
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"You have reached your specified API usage limits. You will regain access"}}"#,
            C::Permanent,
        ),
    ];
    for (dialect, status, body, want) in cases {
        assert_eq!(class(dialect, status, body), want, "{status} {body}");
    }
    // A long hint is no matter of a minute.
    let got = classify_refusal(OpenAi, 429, &[("retry-after", "61")], b"", NOW);
    assert_eq!(got.class, C::ExhaustedUntil);
    let got = classify_refusal(OpenAi, 429, &[("retry-after", "60")], b"", NOW);
    assert_eq!(got.class, C::Wait);
}

proptest! {
    #[test]
    fn no_header_panics_and_no_wait_is_beyond_the_bound(
        value in "[0-9a-zA-Z.:,+ TZ-]{0,40}|\\PC{0,20}",
        name in prop::sample::select(&["retry-after", "retry-after-ms", "x-ratelimit-reset-tokens", "anthropic-ratelimit-tokens-reset"][..]),
        status in 400..600_u16,
        body in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        for dialect in [Dialect::OpenAi, Dialect::Anthropic] {
            let got = classify_refusal(dialect, status, &[(name, &value)], &body, NOW);
            prop_assert!(got.wait_ms.is_none_or(|ms| ms <= WAIT_MS_MAX));
        }
    }
}
