//! Bodies as bytes: same back, within bounds, old versions readable.

use proptest::prelude::*;
use tollbook_ledger::AMOUNT_MAX;
use tollbook_ledger::units::CONTEXT_MAX;
use tollbook_store::{
    BODY_MAX, CodecError, Ending, EntryBody, Figures, Flags, Hold, LADDER_MAX, Lapse, Line, NAME_MAX, Name,
    Origin, Overrun, REQUEST_ID_MAX, Side, Usage,
};

/// A body with something in every field.
fn full() -> EntryBody {
    EntryBody {
        side: Side::Pool,
        request_id: Name::from("req_7f"),
        tenant: Name::from("acme"),
        project: Name::from("search"),
        key: Name::from("key-1"),
        service: Name::from("ranker"),
        user: Name::from("u\"7\\"),
        model_asked: Name::from("fast"),
        model_priced: Name::from("gpt-5-mini"),
        model_used: Name::from("gpt-5"),
        pool: Name::from("openai-eu"),
        usage: Usage {
            input: 1,
            cached: 2,
            cache_write: 3,
            cache_write_1h: 4,
            output: 5,
            reasoning: 6,
            audio_input: 7,
            audio_output: 8,
            image_input: 9,
            web_searches: 10,
        },
        cost_nano: 8_000,
        price_version: 12,
        hold: Hold {
            input_llm_tokens: 13,
            expected_llm_tokens: 14,
            worst_llm_tokens: 15,
            expected_cost_nano: 16,
            worst_cost_nano: 17,
            charged_on_expiry: true,
        },
        lapse: Lapse::default(),
        figures: Figures::Partial,
        ending: Ending::ClientGone,
        overrun: Overrun { llm_tokens: 18, cost_nano: 19 },
        ladder: vec![Name::from("wait 120 ms"), Name::from("clamp 512")],
        latency_ms: 20,
        ttft_ms: Some(0),
        attempts: 2,
        flags: Flags { unpriced: true, degraded: true, shortened: false, damaged: false },
    }
}

/// Names as long as configuration allows them, in every field.
fn longest(letter: char) -> EntryBody {
    let text = |max: usize| std::iter::repeat_n(letter, max / letter.len_utf8()).collect::<String>();
    let name: Name = text(NAME_MAX).into();
    let other = |first: char| Name::from(format!("{first}{}", text(NAME_MAX - 1)));
    EntryBody {
        request_id: text(REQUEST_ID_MAX).into(),
        tenant: name.clone(),
        project: name.clone(),
        key: name.clone(),
        service: name.clone(),
        user: name.clone(),
        model_asked: other('A'),
        model_priced: other('P'),
        model_used: name.clone(),
        pool: name.clone(),
        ladder: vec![name; LADDER_MAX],
        usage: Usage {
            input: i64::MIN,
            cached: i64::MIN,
            cache_write: i64::MIN,
            cache_write_1h: i64::MIN,
            output: i64::MIN,
            reasoning: i64::MIN,
            audio_input: i64::MIN,
            audio_output: i64::MIN,
            image_input: i64::MIN,
            web_searches: i64::MIN,
        },
        cost_nano: i64::MIN,
        price_version: u64::MAX,
        hold: Hold {
            input_llm_tokens: u64::MAX,
            expected_llm_tokens: u64::MAX,
            worst_llm_tokens: u64::MAX,
            expected_cost_nano: u64::MAX,
            worst_cost_nano: u64::MAX,
            charged_on_expiry: true,
        },
        overrun: Overrun { llm_tokens: u64::MAX, cost_nano: u64::MAX },
        latency_ms: u32::MAX,
        ttft_ms: Some(u32::MAX),
        attempts: u16::MAX,
        ..full()
    }
}

#[test]
fn a_full_body_comes_back_as_it_was() {
    assert_eq!(EntryBody::decode(&full().encode()), Ok(full()));
}

#[test]
fn an_empty_body_is_its_version_alone() {
    let bytes = EntryBody::default().encode();
    assert_eq!(bytes, br#"{"v":1}"#);
    assert_eq!(EntryBody::decode(&bytes), Ok(EntryBody::default()));
}

/// Old stored forms stay readable: this line was written by version 1 and is never edited.
#[test]
fn version_1_stays_readable() {
    let stored = include_bytes!("../data/body_v1.json");
    assert_eq!(EntryBody::decode(stored), Ok(full()));
}

#[test]
fn equal_model_names_are_written_once() {
    let model = Name::from("gpt-5");
    let body =
        EntryBody { model_asked: model.clone(), model_priced: model.clone(), model_used: model, ..full() };
    let bytes = body.encode();
    assert_eq!(bytes.windows(5).filter(|w| w == b"gpt-5").count(), 1);
    assert_eq!(EntryBody::decode(&bytes), Ok(body));
}

#[test]
fn the_longest_body_is_within_its_bound_and_loses_nothing() {
    let body = longest('x');
    let bytes = body.encode();
    assert!(bytes.len() <= BODY_MAX, "{} bytes", bytes.len());
    assert_eq!(EntryBody::decode(&bytes), Ok(body));
}

#[test]
fn names_longer_than_allowed_are_cut_at_a_character_and_say_so() {
    let long: Name = "é".repeat(NAME_MAX).into();
    let body = EntryBody { tenant: long, ..EntryBody::default() };
    let back = EntryBody::decode(&body.encode()).unwrap();
    assert_eq!(&*back.tenant, "é".repeat(NAME_MAX / 2));
    assert!(back.flags.shortened);
}

#[test]
fn names_that_json_doubles_or_worse_still_fit() {
    for letter in ['"', '\u{1}', '\u{7f}', '語'] {
        let bytes = longest(letter).encode();
        assert!(bytes.len() <= BODY_MAX, "{letter:?}: {} bytes", bytes.len());
        assert!(EntryBody::decode(&bytes).unwrap().usage.input == i64::MIN);
        assert!(longest(letter).context().len() <= CONTEXT_MAX);
    }
}

#[test]
fn a_context_at_the_bound_keeps_who_is_charged_and_the_hold() {
    let amount = AMOUNT_MAX;
    let hold = Hold {
        input_llm_tokens: amount,
        expected_llm_tokens: amount,
        worst_llm_tokens: amount,
        expected_cost_nano: amount,
        worst_cost_nano: amount,
        charged_on_expiry: true,
    };
    let body = EntryBody { hold, price_version: u64::from(u32::MAX), ..longest('x') };
    let bytes = body.context();
    assert!(bytes.len() <= CONTEXT_MAX, "{} bytes", bytes.len());
    let back = EntryBody::decode(&bytes).unwrap();
    assert_eq!((&back.tenant, &back.key, &back.pool), (&body.tenant, &body.key, &body.pool));
    assert_eq!((&back.model_used, &back.request_id), (&body.model_used, &body.request_id));
    assert_eq!(back.hold, body.hold);
    assert_eq!(back.price_version, body.price_version);
    assert!(back.flags.shortened);
}

#[test]
fn a_usual_context_keeps_every_name_and_no_outcome() {
    let back = EntryBody::decode(&full().context()).unwrap();
    let outcome_free = EntryBody {
        usage: Usage::default(),
        cost_nano: 0,
        figures: Figures::default(),
        ending: Ending::default(),
        overrun: Overrun::default(),
        ladder: Vec::new(),
        latency_ms: 0,
        ttft_ms: None,
        ..full()
    };
    assert_eq!(back, outcome_free);
}

#[test]
fn a_context_tells_how_an_expiry_is_read_unless_names_need_the_room() {
    let line = |account| Some(Line { account, base: AMOUNT_MAX, per_output: AMOUNT_MAX });
    let lapse = Lapse { output: line(u64::MAX), cost: line(1) };
    let body = EntryBody { lapse, ..full() };
    assert_eq!(EntryBody::decode(&body.context()).unwrap().lapse, lapse);
    assert_eq!(EntryBody::decode(&body.encode()).unwrap().lapse, Lapse::default());
    let crowded = EntryBody { lapse, ..longest('x') };
    let back = EntryBody::decode(&crowded.context()).unwrap();
    assert_eq!((&back.tenant, &back.key), (&crowded.tenant, &crowded.key));
    assert_eq!(back.lapse, Lapse::default());
    assert!(crowded.context().len() <= CONTEXT_MAX);
}

#[test]
fn an_output_is_read_back_from_its_amount() {
    let line = Line { account: 1, base: 12_345, per_output: 1_000 };
    for output in [0, 1, 7, 4096] {
        assert_eq!(line.output(line.amount(output)), Some(output));
    }
    assert_eq!(Line { per_output: 0, ..line }.output(5), None);
    assert!(line.output(u64::MAX).is_some() && line.amount(u64::MAX) > 0);
}

#[test]
fn damage_and_other_versions_are_errors() {
    assert_eq!(EntryBody::decode(br#"{"v":2}"#), Err(CodecError::Version(2)));
    assert_eq!(EntryBody::decode(b"[1]"), Err(CodecError::Damaged(0)));
    assert!(matches!(EntryBody::decode(b""), Err(CodecError::Damaged(_))));
    assert!(matches!(EntryBody::decode(br#"{"v":1,"c":1.5}"#), Err(CodecError::Damaged(_))));
    assert!(matches!(EntryBody::decode(b"{\"v\":1,\"t\":\"\xff\"}"), Err(CodecError::Damaged(_))));
    assert_eq!(EntryBody::decode(&[b' '; BODY_MAX + 1]), Err(CodecError::TooLong));
}

#[test]
fn unknown_fields_of_this_version_are_skipped() {
    assert_eq!(EntryBody::decode(br#"{"v":1,"zz":{"a":[1]},"c":7}"#).unwrap().cost_nano, 7);
}

#[test]
fn codes_and_words_are_distinct_and_come_back() {
    fn check<T: Copy + PartialEq + std::fmt::Debug>(
        all: &[T],
        code: fn(T) -> u8,
        of: fn(u8) -> T,
        word: fn(T) -> &'static str,
    ) {
        let words: std::collections::BTreeSet<_> = all.iter().map(|v| word(*v)).collect();
        assert_eq!(words.len(), all.len());
        for variant in all {
            assert_eq!(of(code(*variant)), *variant);
        }
    }
    check(Side::ALL, Side::code, Side::of, Side::word);
    check(Origin::ALL, Origin::code, Origin::of, Origin::word);
    check(Figures::ALL, Figures::code, Figures::of, Figures::word);
    check(Ending::ALL, Ending::code, Ending::of, Ending::word);
    for bits in 0..16 {
        assert_eq!(Flags::of(bits).bits(), bits);
    }
}

proptest! {
    #[test]
    fn any_body_within_bounds_comes_back(
        request_id in "[a-z0-9_]{0,40}",
        names in prop::collection::vec("[a-zA-Z0-9._:/@-]{0,64}", 10),
        amounts in prop::collection::vec(any::<i64>(), 11),
        holds in prop::collection::vec(any::<u64>(), 8),
        codes in (0u8..3, 0u8..7, 0u8..11, 0u8..16),
        ladder in prop::collection::vec("[a-z0-9 ]{0,40}", 0..=LADDER_MAX),
        times in any::<(u32, Option<u32>, u16, bool)>(),
    ) {
        let name = |i: usize| Name::from(names[i].as_str());
        let body = EntryBody {
            side: Side::of(codes.0),
            request_id: request_id.into(), tenant: name(1), project: name(2), key: name(3), service: name(4), user: name(5),
            model_asked: name(6), model_priced: name(7), model_used: name(8), pool: name(9),
            usage: Usage {
                input: amounts[0], cached: amounts[1], cache_write: amounts[2], cache_write_1h: amounts[3],
                output: amounts[4], reasoning: amounts[5], audio_input: amounts[6], audio_output: amounts[7],
                image_input: amounts[8], web_searches: amounts[9],
            },
            cost_nano: amounts[10],
            price_version: holds[0],
            hold: Hold {
                input_llm_tokens: holds[1], expected_llm_tokens: holds[2], worst_llm_tokens: holds[3],
                expected_cost_nano: holds[4], worst_cost_nano: holds[5], charged_on_expiry: times.3,
            },
            lapse: Lapse::default(),
            figures: Figures::of(codes.1),
            ending: Ending::of(codes.2),
            overrun: Overrun { llm_tokens: holds[6], cost_nano: holds[7] },
            ladder: ladder.iter().map(|s| Name::from(s.as_str())).collect(),
            latency_ms: times.0, ttft_ms: times.1, attempts: times.2,
            flags: Flags::of(codes.3),
        };
        prop_assert_eq!(EntryBody::decode(&body.encode()), Ok(body.clone()));
        prop_assert!(body.context().len() <= CONTEXT_MAX);
        prop_assert!(EntryBody::decode(&body.context()).is_ok());
    }

    #[test]
    fn any_bytes_are_a_body_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = EntryBody::decode(&bytes);
    }

    #[test]
    fn any_text_fits_in_a_context(text in any::<String>(), user in any::<String>()) {
        let body = EntryBody { user: user.into(), tenant: text.into(), ..longest('x') };
        prop_assert!(body.context().len() <= CONTEXT_MAX);
        prop_assert!(body.encode().len() <= BODY_MAX);
    }
}
